"""What a sweep of thousands of trials costs its driver: plan, run, resume and status with only the training empty.

`python bench/scale.py [--trials 5000] [--json FILE]` from the root; bench/README.md says what is measured.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

from bench import _script
from trainables.common import provenance
from trainables.storage import atomic_files
from trainables.storage.names import CONFIG
from trainables.trial.record import Record, write_result
from trainables.workers import ray_processes

SWEEP = "quickstart"
FACTS = "scale.json"
"""Where the driver's process leaves what it measured of itself, in the storage."""


class Empty(ray_processes.TrialActor):
    """A trial as every other one, but for its training and evaluation: it writes made-up metrics of its seed."""

    def step(self) -> dict[str, Any]:
        generator = random.Random(self.trial.id())
        record = Record(provenance.now())
        quality, utility = -20 * generator.random(), generator.random()
        record.metrics = {"forget_quality": quality, "model_utility": utility}
        record.metrics |= {f"part_{number}": generator.random() for number in range(20)}
        half = {"forget_quality": quality, "model_utility": utility}
        record.halves = [{**half, "half": name} for name in ("even", "odd")]
        record.steps = [{"step": step, "loss": generator.random(), "skipped": False} for step in range(1, 6)]
        place = self.store.trial(self.trial.id())
        atomic_files.write_json(place / CONFIG, self.trial.model_dump(mode="json"))
        return ray_processes.report_end(write_result(self.trial, record, None, place))


def sweep_arguments(trials: int, place: Path) -> list[str]:
    """Return the arguments of a sweep with so many seeds that it has at least so many trials."""
    _, plan = _script.run("-m", "platform.sweep", SWEEP, "--dry-run", "--json", "--storage", place)
    each = len(json.loads(plan)["trials"])
    return [SWEEP, "--storage", str(place), "--seeds", ",".join(map(str, range(-(-trials // each))))]


def drive(command: Sequence[str]) -> int:
    """Run the sweep's own command with Empty in the actor's place, and leave what it took in the storage.

    `wall` and `cpu` are those of everything between Ray's start and the report: preparation, Tune, storage, MLflow.
    """
    import typer

    import platform.sweep as sweep
    from platform.driver import run_on_ray
    from platform.driver.trial_callback import TrialCallback

    run_on_ray.TrialActor = Empty  # type: ignore[misc]
    init, run_all = TrialCallback.__init__, run_on_ray.prepare_and_tune
    facts: dict[str, Any] = {"samples": []}
    over = threading.Event()

    def follow(reporter: Any) -> None:
        while not over.wait(1.0):
            facts["samples"].append((reporter.counts.done, psutil.Process().memory_info().rss))

    def watched_init(self: Any, *values: Any) -> None:
        init(self, *values)
        threading.Thread(target=follow, args=(self,), daemon=True).start()

    def measured(*values: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        mirror = run_all(*values)
        over.set()
        facts["wall"], facts["cpu"] = time.perf_counter() - wall, time.process_time() - cpu
        return mirror

    TrialCallback.__init__ = watched_init  # type: ignore[method-assign]
    run_on_ray.prepare_and_tune = measured
    status = 0
    try:
        typer.run(sweep.main)
    except SystemExit as end:
        status = int(end.code or 0)
    facts["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    atomic_files.write_json(Path(command[command.index("--storage") + 1]) / FACTS, facts)
    return status


def measure(trials: int, place: Path) -> dict[str, Any]:
    command = sweep_arguments(trials, place)
    plan, _ = _script.run("-m", "platform.sweep", *command, "--dry-run", "--json")
    _script.run("bench/scale.py", "--drive", *command)
    run = atomic_files.read_json(place / FACTS) or {}
    count = len(list(place.glob("trials/*/result.json")))
    resume, _ = _script.run("-m", "platform.sweep", *command, "--resume")
    status, _ = _script.run("-m", "platform.status", SWEEP, "--storage", place)
    first = next(sample for sample in run["samples"] if sample[0] >= count // 10)
    last = run["samples"][-1]
    return {
        "trials": count,
        "plan_seconds": plan,
        "run_seconds_per_trial": run["wall"] / count,
        "driver_cpu_seconds_per_trial": run["cpu"] / count,
        "memory_bytes_per_trial": (last[1] - first[1]) / (last[0] - first[0]),
        "peak_bytes": run["peak_bytes"],
        "resume_seconds": resume,
        "status_seconds": status,
    }


def main(arguments: list[str] | None = None) -> int:
    if "--drive" in sys.argv:
        sys.argv.remove("--drive")
        return drive(sys.argv)
    parser = _script.make_parser(__doc__)
    parser.add_argument("--trials", type=int, default=5000)
    options = _script.parse(parser, arguments)
    with tempfile.TemporaryDirectory() as place:
        found = measure(options.trials, Path(place))
    _script.report(options.json, [found])
    return 0


if __name__ == "__main__":
    sys.exit(main())
