"""What lies between two trials: from the end of one to the first step of the next, with one rank and with two.

`python bench/overhead.py [--seeds 2] [--ranks 1,2] [--json FILE]` from the root; bench/README.md says what is measured.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _script
from trainables.storage import files
from trainables.storage.base import RESULT
from trainables.workers import launcher, trial_actor

NOTES = "overhead"
"""The folder in the storage where each trial leaves its moments."""
STRATEGY = "grid"
"""NPO without and with four settings of GRU: five trials a seed."""
SETTINGS = {"training.max_steps": 2, "benchmark.limit": 2}


def note(config: dict[str, Any], **moments: float) -> None:
    """Add moments (seconds since the epoch) to a trial's, unless they are known."""
    place, key = Path(config["storage"]) / NOTES, config["id"]
    known = files.read_json(place / f"{key}.json") or {}
    files.write_json(place / f"{key}.json", moments | known)


def noted(step: Callable[..., Any], config: dict[str, Any]) -> Callable[..., Any]:
    """Return the loop's step, which notes when the first one begins."""

    def call(*arguments: Any) -> Any:
        note(config, first_step=time.time())
        return step(*arguments)

    return call


class Noted(trial_actor.TrialActor):
    """A trial as every other one, which notes when it was taken and when its first step began."""

    def _take(self, new_config: dict[str, Any]) -> None:
        from trainables.training import loop

        super()._take(new_config)
        trial = {"storage": str(self.store.root), "id": self.trial.id()}
        note(trial, taken=time.time())
        plain = getattr(loop._step, "plain", loop._step)
        loop._step = noted(plain, trial)
        loop._step.plain = plain  # type: ignore[attr-defined]


def rank(config: dict[str, Any]) -> None:
    """Run one rank, of which the first notes when Ray Train called it and when its first step began."""
    import torch.distributed as dist

    from trainables.config.trial import Trial
    from trainables.training import loop
    from trainables.workers import trial_actor

    trial = {"storage": config["storage"], "id": Trial.model_validate(config["trial"]).id()}
    if dist.get_rank() == 0:
        note(trial, taken=time.time())
        loop._step = noted(loop._step, trial)
    trial_actor.rank(config)


def ranks(config: dict[str, Any]) -> None:
    """Run Tune's function for a trial of many ranks, whose ranks take notes."""
    from trainables.workers import launcher, trial_actor

    plain, trial_actor.rank = trial_actor.rank, rank
    try:
        launcher.train_ranks(config)
    finally:
        trial_actor.rank = plain


def drive() -> int:
    """Run the sweep's own command in this process, with actors and ranks that take notes."""
    trial_actor.TrialActor, launcher.train_ranks = Noted, ranks  # type: ignore[misc]
    return _script.run_sweep_here()


def measure(options: argparse.Namespace, world: int, place: Path) -> dict[str, Any]:
    """Run NPO's trials on forget05, one after another, and return medians in seconds."""
    numbers = ",".join(map(str, range(options.seeds)))
    command = f"--storage {place} --max-concurrent 1 --strategy {STRATEGY} --seeds {numbers}".split()
    command += ["--only", "method=npo", "--only", "benchmark.split=forget05"]
    folders = {"models": options.models, "benchmark.data": options.data}
    command += _script.settings({**folders, "resources.ranks": world, **SETTINGS})
    _script.run("bench/overhead.py", "--drive", "tofu_tiny", *command)
    return {"ranks": world, **figures(moments(place))}


def moments(place: Path) -> list[dict[str, float]]:
    """Return what each trial of a storage noted, and when its result was written."""
    found = []
    for file in place.glob(f"{NOTES}/*.json"):
        ended = (place / "trials" / file.stem / RESULT).stat().st_mtime
        found.append((files.read_json(file) or {}) | {"ended": ended})
    return found


def figures(trials: list[dict[str, float]]) -> dict[str, Any]:
    """Return medians between trials that ran one after another; the first one's start is Ray's and nobody's gap."""
    trials = sorted(trials, key=lambda moments: moments["taken"])
    gaps = [after["first_step"] - before["ended"] for before, after in pairwise(trials)]
    ours = [moments["first_step"] - moments["taken"] for moments in trials[1:]]
    return {
        "trials": len(trials),
        "gap_seconds": statistics.median(gaps),
        "gap_range": [min(gaps), max(gaps)],
        "ours_seconds": statistics.median(ours),
    }


def main(arguments: list[str] | None = None) -> int:
    if "--drive" in sys.argv:
        sys.argv.remove("--drive")
        return drive()
    parser = _script.make_parser(__doc__)
    _script.add_tofu(parser)
    parser.add_argument("--seeds", type=int, default=2, help="five trials each (default 2)")
    parser.add_argument("--ranks", type=_script.numbers, default=[1, 2], help="of a trial (default 1,2)")
    options = _script.parse(parser, arguments, "models", "data")
    rows = []
    for world in options.ranks:
        with tempfile.TemporaryDirectory() as place:
            rows.append(measure(options, world, Path(place)))
        row = rows[-1]
        low, high = row["gap_range"]
        print(
            f"{row['ranks']} ranks, {row['trials']} trials: {row['gap_seconds']:.2f} s trial to trial "
            f"({low:.2f} to {high:.2f}), {row['ours_seconds']:.2f} s of it from our first line to the first step"
        )
    _script.save(options.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
