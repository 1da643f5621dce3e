"""What lies between two trials: from the end of one to the first step of the next, with one rank and with two.

`python bench/overhead.py [--seeds 2] [--ranks 1,2] [--json FILE]` from the root; bench/README.md says what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trainables import launching, provenance, storage, workers
from trainables.provenance import ROOT

SHARED = Path(os.environ.get("UNLEARN_SHARED", ROOT.parent / "shared"))
NOTES = "overhead"
"""The folder in the storage where each trial leaves its moments."""
SETTINGS = ["training.max_steps=2", "benchmark.limit=2"]


def note(config: dict[str, Any], **moments: float) -> None:
    """Add moments (seconds since the epoch) to a trial's, unless they are known."""
    place, key = Path(config["storage"]) / NOTES, config["id"]
    known = storage.read_json(place / f"{key}.json") or {}
    storage.write_json(place / f"{key}.json", moments | known)


def noted(step: Callable[..., Any], config: dict[str, Any]) -> Callable[..., Any]:
    """The loop's step, which notes when the first one begins."""

    def call(*arguments: Any) -> Any:
        note(config, first_step=time.time())
        return step(*arguments)

    return call


class Noted(workers.TrialActor):
    """A trial as every other one, which notes when it was taken and when its first step began."""

    def _take(self, new_config: dict[str, Any]) -> None:
        from trainables import loop

        super()._take(new_config)
        told = {"storage": str(self.store.root), "id": self.trial.id()}
        note(told, taken=time.time())
        plain = getattr(loop._step, "plain", loop._step)
        loop._step = noted(plain, told)
        loop._step.plain = plain  # type: ignore[attr-defined]


def rank(config: dict[str, Any]) -> None:
    """One rank, of which the first notes when Ray Train called it and when its first step began."""
    import torch.distributed as dist

    from trainables import loop, workers
    from trainables.config import Trial

    told = {"storage": config["storage"], "id": Trial.model_validate(config["trial"]).id()}
    if dist.get_rank() == 0:
        note(told, taken=time.time())
        loop._step = noted(loop._step, told)
    workers.rank(config)


def ranks(config: dict[str, Any]) -> None:
    """Tune's function for a trial of many ranks, whose ranks take notes."""
    from trainables import launching, workers

    plain, workers.rank = workers.rank, rank
    try:
        launching.train_ranks(config)
    finally:
        workers.rank = plain


def drive() -> int:
    """The sweep's own command in this process, with actors and ranks that take notes."""
    import typer

    import platform.sweep as sweep

    workers.TrialActor, launching.train_ranks = Noted, ranks  # type: ignore[misc]
    try:
        typer.run(sweep.main)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def measure(seeds: int, world: int, place: Path) -> dict[str, Any]:
    """Run five trials of NPO a seed, one after another, and return medians in seconds."""
    numbers = ",".join(map(str, range(seeds)))
    told = f"--storage {place} --max-concurrent 1 --strategy grid --seeds {numbers}".split()
    told += ["--only", "method=npo", "--only", "benchmark.split=forget05"]
    asked = [f"models={SHARED}/models/tofu_tiny", f"benchmark.data={SHARED}/data/tofu", f"resources.ranks={world}"]
    asked += SETTINGS
    told += [part for setting in asked for part in ("--set", setting)]
    command = [sys.executable, "bench/overhead.py", "--drive", "tofu_tiny", *map(str, told)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the sweep ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    trials = []
    for file in place.glob(f"{NOTES}/*.json"):
        ended = (place / "trials" / file.stem / storage.RESULT).stat().st_mtime
        trials.append((storage.read_json(file) or {}) | {"ended": ended})
    trials.sort(key=lambda moments: moments["taken"])
    gaps = [after["first_step"] - before["ended"] for before, after in pairwise(trials)]
    ours = [moments["first_step"] - moments["taken"] for moments in trials[1:]]
    return {
        "ranks": world,
        "trials": len(trials),
        "gap_seconds": statistics.median(gaps),
        "gap_range": [min(gaps), max(gaps)],
        "ours_seconds": statistics.median(ours),
    }


def main() -> int:
    if "--drive" in sys.argv:
        sys.argv.remove("--drive")
        return drive()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (SHARED / "models/tofu_tiny").is_dir():
        raise SystemExit(f"overhead: no models in {SHARED} (UNLEARN_SHARED names another folder): not measured")
    rows = []
    for world in map(int, options.ranks.split(",")):
        with tempfile.TemporaryDirectory() as place:
            rows.append(measure(options.seeds, world, Path(place)))
        row = rows[-1]
        low, high = row["gap_range"]
        print(
            f"{row['ranks']} ranks, {row['trials']} trials: {row['gap_seconds']:.2f} s trial to trial "
            f"({low:.2f} to {high:.2f}), {row['ours_seconds']:.2f} s of it from our first line to the first step"
        )
    if options.json:
        facts = {"cores": os.cpu_count(), "versions": provenance.versions(), **provenance.stamp()}
        options.json.write_text(json.dumps([row | facts for row in rows], indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
