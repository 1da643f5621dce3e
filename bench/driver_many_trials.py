"""What a sweep of thousands of trials costs its driver: plan, run, resume and status with only the training empty.

`python bench/driver_many_trials.py [--trials 5000] [--json FILE]` from the root; bench/README.md says what is measured.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
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
RESULTS, SAMPLE_SECONDS = "trials/*/result.json", 1.0


class Empty(ray_processes.TrialActor):
    """A trial as every other one, but for its training and evaluation: it writes made-up metrics of its seed."""

    def step(self) -> dict[str, Any]:
        generator = random.Random(self.trial.id())
        record = Record(provenance.now())
        record.metrics = {"forget_quality": -20 * generator.random(), "model_utility": generator.random()}
        record.metrics |= {f"part_{number}": generator.random() for number in range(20)}
        record.halves = [record.metrics, record.metrics]
        record.steps = [{"step": step, "loss": generator.random(), "skipped": False} for step in range(1, 6)]
        place = self.store.trial(self.trial.id())
        atomic_files.write_json(place / CONFIG, self.trial.model_dump(mode="json"))
        return ray_processes.report_end(write_result(self.trial, record, None, place))


def sweep_arguments(trials: int, place: Path) -> list[str]:
    """Return the arguments of a sweep with so many seeds that it has at least so many trials."""
    _, plan = _script.run("-m", "platform.sweep", SWEEP, "--dry-run", "--json", "--storage", place)
    each = len(json.loads(plan)["trials"])
    return [SWEEP, "--storage", str(place), "--seeds", ",".join(map(str, range(-(-trials // each))))]


def drive() -> None:
    """Run the sweep's own command with Empty in the actor's place."""
    import typer

    import platform.sweep.__main__ as sweep
    from platform.sweep import run_on_ray

    run_on_ray.TrialActor = Empty  # type: ignore[misc]
    typer.run(sweep.main)


def follow_driver(command: Sequence[str], place: Path) -> tuple[float, list[tuple[int, float, int]]]:
    """Run `drive` in a process; return its seconds, and now and then trials, processor time and memory so far."""
    started, samples = time.perf_counter(), []
    driver = psutil.Popen([sys.executable, __file__, "--drive", *command], cwd=_script.ROOT, stdout=sys.stderr)
    while driver.poll() is None:
        with contextlib.suppress(psutil.Error), driver.oneshot():
            used, memory = driver.cpu_times(), driver.memory_info().rss
            samples.append((len(list(place.glob(RESULTS))), used.user + used.system, memory))
        time.sleep(SAMPLE_SECONDS)
    if driver.returncode:
        raise SystemExit(f"the sweep ended with {driver.returncode}")
    return time.perf_counter() - started, [sample for sample in samples if sample[2]]


def measure(trials: int, place: Path) -> dict[str, Any]:
    command = sweep_arguments(trials, place)
    plan, _ = _script.run("-m", "platform.sweep", *command, "--dry-run", "--json")
    wall, samples = follow_driver(command, place)
    count = len(list(place.glob(RESULTS)))
    resume, _ = _script.run("-m", "platform.sweep", *command, "--resume")
    status, _ = _script.run("-m", "platform.status", SWEEP, "--storage", place)
    (done, _, memory), (every, cpu, most) = next(one for one in samples if one[0] >= count // 10), samples[-1]
    return {
        "trials": count,
        "plan_seconds": plan,
        "run_seconds_per_trial": wall / count,
        "driver_cpu_seconds_per_trial": cpu / count,
        "memory_bytes_per_trial": (most - memory) / max(1, every - done),
        "peak_bytes": max(memory for _, _, memory in samples),
        "resume_seconds": resume,
        "status_seconds": status,
    }


def main(arguments: list[str] | None = None) -> None:
    if "--drive" in sys.argv:
        sys.argv.remove("--drive")
        drive()
    else:
        _script.measure_trials(__doc__, 5000, measure, arguments)


if __name__ == "__main__":
    main()
