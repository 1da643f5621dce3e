"""What a sweep takes beside its trials: its command's wall-clock over the trials' own time on all slots.

`python bench/sweep.py [--seeds 3] [--slots 2] [--json FILE]` from the root; bench/README.md says what is measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _script
from trainables.storage import files
from trainables.storage.base import RESULT

METHODS = "ga,gd,wga,npo"


def measure(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Run the methods without and with GRU over the seeds from an empty storage; return seconds."""
    numbers = ",".join(map(str, range(options.seeds)))
    command = ["--storage", str(place), "--strategy", "paper", "--keep", "none", "--max-concurrent", str(options.slots)]
    command += ["--only", f"method={options.methods}", "--only", "benchmark.split=forget05", "--seeds", numbers]
    command += _script.settings({"models": options.models, "benchmark.data": options.data})
    command += [part for setting in options.set for part in ("--set", setting)]
    wall, _ = _script.run("-m", "platform.sweep", "tofu_tiny", *command)
    results = [files.read_json(file) or {} for file in place.glob(f"trials/*/{RESULT}")]
    return figures([result["seconds"] for result in results], wall, options.slots)


def figures(trials: list[dict[str, float]], wall: float, slots: int) -> dict[str, Any]:
    """Compare the command's wall-clock with the trials' training and evaluation on all slots."""
    parts = {name: sum(trial[name] for trial in trials) for name in ("loading", "training", "evaluation")}
    pure = (parts["training"] + parts["evaluation"]) / slots
    return {
        "trials": len(trials),
        "slots": slots,
        "wall_seconds": wall,
        **parts,
        "slot_seconds": pure,
        "ratio": wall / pure,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = _script.make_parser(__doc__)
    _script.add_tofu(parser)
    parser.add_argument("--seeds", type=int, default=3, help="of each method without and with GRU (default 3)")
    parser.add_argument("--slots", type=int, default=2, help="trials at a time (default 2)")
    parser.add_argument("--methods", default=METHODS, help=f"default {METHODS}")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="of the sweep; repeatable")
    options = _script.parse(parser, arguments, "models", "data")
    with tempfile.TemporaryDirectory() as place:
        row = measure(options, Path(place))
    _script.report(options.json, [row])


if __name__ == "__main__":
    main()
