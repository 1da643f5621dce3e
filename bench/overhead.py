"""The time between two trials: from the end of one to the first step of the next, with one rank and with two.

`python bench/overhead.py [--seeds 2] [--ranks 1,2] [--json FILE]` from the root; bench/README.md says what is measured.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _script
from trainables.storage import files
from trainables.storage.base import RESULT

STRATEGY = "grid"
"""NPO without and with four settings of GRU: five trials a seed."""
SETTINGS = {"training.max_steps": 2, "benchmark.limit": 2}


def measure(options: argparse.Namespace, world: int, place: Path) -> dict[str, Any]:
    """Run NPO's trials on forget05, one after another, and return medians in seconds."""
    numbers = ",".join(map(str, range(options.seeds)))
    command = f"--storage {place} --max-concurrent 1 --strategy {STRATEGY} --seeds {numbers}".split()
    command += ["--only", "method=npo", "--only", "benchmark.split=forget05"]
    folders = {"models": options.models, "benchmark.data": options.data}
    command += _script.settings({**folders, "resources.ranks": world, **SETTINGS})
    _script.run("-m", "platform.sweep", "tofu_tiny", *command)
    trials = [(file.stat().st_mtime, files.read_json(file) or {}) for file in place.glob(f"trials/*/{RESULT}")]
    return {"ranks": world, **figures([(written, result["seconds"]) for written, result in trials])}


def figures(trials: list[tuple[float, dict[str, float]]]) -> dict[str, Any]:
    """Return medians between trials that ran one after another, each given as the end and the seconds of its parts.

    The first trial waits for Ray's start, which is in no gap.
    """
    trials = sorted(trials, key=lambda trial: trial[0])
    first_steps = [written - seconds["total"] + seconds["loading"] for written, seconds in trials]
    gaps = [step - before for (before, _), step in zip(trials, first_steps[1:], strict=False)]
    return {
        "trials": len(trials),
        "gap_seconds": statistics.median(gaps),
        "gap_range": [min(gaps), max(gaps)],
        "loading_seconds": statistics.median(seconds["loading"] for _, seconds in trials[1:]),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = _script.make_parser(__doc__)
    _script.add_tofu(parser)
    parser.add_argument("--seeds", type=int, default=2, help="five trials each (default 2)")
    parser.add_argument("--ranks", type=_script.numbers, default=[1, 2], help="of a trial (default 1,2)")
    options = _script.parse(parser, arguments, "models", "data")
    rows = []
    for world in options.ranks:
        with tempfile.TemporaryDirectory() as place:
            rows.append(measure(options, world, Path(place)))
    _script.report(options.json, rows)


if __name__ == "__main__":
    main()
