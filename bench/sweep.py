"""What a sweep takes beside its trials: its command's wall-clock over the trials' own time on all slots.

`python bench/sweep.py [--seeds 3] [--slots 2] [--json FILE]` from the root; bench/README.md says what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trainables import provenance, storage
from trainables.provenance import ROOT

SHARED = Path(os.environ.get("UNLEARN_SHARED", ROOT.parent / "shared"))
METHODS = "ga,gd,wga,npo"


def measure(seeds: int, slots: int, place: Path) -> dict[str, Any]:
    """Run four methods without and with GRU over the seeds from an empty storage; seconds."""
    numbers = ",".join(map(str, range(seeds)))
    command = [sys.executable, "-m", "platform.sweep", "tofu_tiny", "--storage", str(place), "--strategy", "paper"]
    command += ["--only", f"method={METHODS}", "--only", "benchmark.split=forget05", "--seeds", numbers]
    command += ["--max-concurrent", str(slots), "--keep", "none"]
    for setting in (f"models={SHARED}/models/tofu_tiny", f"benchmark.data={SHARED}/data/tofu"):
        command += ["--set", setting]
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    wall = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"the sweep ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    results = [storage.read_json(file) or {} for file in place.glob("trials/*/result.json")]
    parts = {name: sum(result["seconds"][name] for result in results) for name in ("loading", "training", "evaluation")}
    pure = (parts["training"] + parts["evaluation"]) / slots
    return {"trials": len(results), "slots": slots, "wall_seconds": wall, **parts, "ratio": wall / pure}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (SHARED / "models/tofu_tiny").is_dir():
        raise SystemExit(f"sweep: no models in {SHARED} (UNLEARN_SHARED names another folder): not measured")
    with tempfile.TemporaryDirectory() as place:
        row = measure(options.seeds, options.slots, Path(place))
    print(
        f"{row['trials']} trials on {row['slots']} slots: {row['wall_seconds']:.0f} s, training and evaluation alone "
        f"{(row['training'] + row['evaluation']) / row['slots']:.0f} s a slot: ratio {row['ratio']:.3f} (bar 1.15)"
    )
    if options.json:
        facts = {"cores": os.cpu_count(), "versions": provenance.versions(), **provenance.stamp()}
        options.json.write_text(json.dumps([row | facts], indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
