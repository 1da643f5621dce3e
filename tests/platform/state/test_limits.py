"""When a sweep begins no further trial: GPU-hours, failures of one cause; and how many run side by side."""

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from platform.schedule import capacity
from platform.state import limits
from platform.state.limits import FIRST_TRIALS_WATCHED, SweepStopper, load_spent_gpu_seconds, record_spent_gpu_seconds
from platform.state.trial_outcomes import count_trial_gpus
from tests.support.small_sweep import seeds
from trainables.config.settings import Resources
from trainables.storage.folder_storage import Storage


def outcome(status: str, message: str = "") -> dict[str, Any]:
    return {"status": status, "error": {"message": message} if message else None}


def end(stopper: SweepStopper, results: list[dict[str, Any]]) -> None:
    for trial, result in zip(seeds(len(results)), results, strict=True):
        stopper.count_started_trial(trial)
        stopper.count_ended_trial(trial.id(), result)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the monotonic clock, to be set."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_gpu_hours_count_ranks_and_gpus_of_ended_and_running_trials(now: list[float]) -> None:
    """Two ranks of one GPU each, 900 s ended and 450 s running, after 1800 s of earlier starts: 5/4 hours."""
    stopper = SweepStopper(gpu_hours=1.25, spent=1800.0)
    first, second = seeds(2, ranks=2, gpus=1)
    stopper.count_started_trial(first)
    now[0] = 900.0
    stopper.count_ended_trial(first.id(), outcome("finished"))
    stopper.count_started_trial(second)
    now[0] = 1349.0
    assert stopper.reason is None
    now[0] = 1350.0
    stopper.count_started_trial(second)  # its worker died and it goes on
    assert stopper.gpu_hours_spent == pytest.approx(1.25)
    assert (stopper.reason or "").startswith("--gpu-hours 1.25: 1.25 GPU-hours are spent")
    assert stopper.advice == "go on with a larger --gpu-hours and --resume"


def test_minutes_count_from_the_first_trial_of_this_start(now: list[float]) -> None:
    stopper = SweepStopper(minutes=2.0)
    now[0] = 500.0
    assert stopper.reason is None
    for trial in seeds(2):
        stopper.count_started_trial(trial)
        now[0] += 60.0
    now[0] = 619.0
    assert stopper.reason is None
    now[0] = 620.0
    assert (stopper.reason, stopper.advice) == ("--minutes 2: they are over", "go on with --resume")


def test_gpu_hours_of_earlier_starts_and_of_the_preparation(now: list[float]) -> None:
    """A rank without a GPU counts as one."""
    assert [count_trial_gpus(Resources(ranks=2, gpus=gpus)) for gpus in (0.5, 0)] == [1, 2]
    stopper = SweepStopper(gpu_hours=1.0)
    with stopper.count_gpu_time_of_preparation(2.0):
        now[0] = 900.0
        assert stopper.gpu_hours_spent == 0.5
    now[0] = 1800.0
    assert (stopper.gpu_hours_spent, stopper.running) == (0.5, {})
    for hours in (0.0, -1.0, float("inf"), float("nan")):
        (problem,) = limits.StartOptions(gpu_hours=hours).find_problems("grid", None, None)
        assert problem.startswith("--gpu-hours: must be above 0")


def test_what_is_spent_is_kept_while_the_driver_lives(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill amid a trial leaves the note of it as it is."""
    monkeypatch.setattr(limits, "SPENT_GPU_NOTE_SECONDS", 0.02)
    path = store.lock("tiny", "0a1b2c3d").with_suffix(".spent")
    assert load_spent_gpu_seconds(path, store) == 0
    stopper = SweepStopper(spent=30.0)
    with record_spent_gpu_seconds(stopper, path, store):
        stopper.count_started_trial(seeds(1, ranks=32)[0])
        limit = time.monotonic() + 20
        while load_spent_gpu_seconds(path, store) < 31.0:  # what a start after a kill at this moment would find
            assert time.monotonic() < limit
            time.sleep(0.02)
    assert 31.0 <= load_spent_gpu_seconds(path, store) <= stopper.gpu_hours_spent * 3600


def test_first_failures_of_one_cause_stop_the_sweep() -> None:
    """Numbers and paths apart; one other outcome among the first five, and the sweep goes on."""
    failures = [outcome("failed", f"ValueError: row {k} of /tmp/{k}ab is bad") for k in range(FIRST_TRIALS_WATCHED)]
    stopper = SweepStopper()
    end(stopper, failures[:-1])
    assert stopper.reason is None
    stopper.count_ended_trial("last", failures[-1])
    assert stopper.reason == (
        "the first 5 trials that ended all failed for the same cause: ValueError: row 0 of /tmp/0ab is bad"
    )
    assert stopper.advice == "mend that, then go on with --resume --retry-failed"
    others = [outcome("finished"), outcome("diverged", "loss is nan"), outcome("failed", "KeyError: 'question'")]
    for other, place in itertools.product(others, range(FIRST_TRIALS_WATCHED)):
        stopper = SweepStopper()
        end(stopper, [*failures[:place], other, *failures[place:], *failures])
        assert stopper.reason is None, (other, place)


@pytest.mark.parametrize(
    ("limit", "most", "address", "slots"),
    [
        ("max 100000", None, None, 4),
        ("300000 100000", None, None, 1),
        ("max 100000", 3, None, 3),
        ("max 100000", None, "auto", 1),
        ("max 100000", 6, "auto", 6),
    ],
)
def test_trials_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int | None, address: str | None, slots: int
) -> None:
    """Eight cores, two for each trial."""
    (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(capacity, "CPU_LIMIT_FILE", tmp_path / "cpu.max")
    monkeypatch.setattr(capacity.os, "sched_getaffinity", lambda pid: range(8), raising=False)
    monkeypatch.setattr(capacity.os, "cpu_count", lambda: 8)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert capacity.estimate_parallel_trials(Resources(cpus=2), 15, most, address) == slots
