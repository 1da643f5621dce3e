"""What a worker does with a trial that another process has ended, or is at."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.support.starts import RESULT_FIELDS
from tests.support.tracked_store import TRIALS
from trainables.common import process_identity
from trainables.storage import atomic_files
from trainables.storage.file_names import PROGRESS, RESULT, STEPS
from trainables.storage.folder_storage import Storage
from trainables.trial import progress
from trainables.trial.runner import TrialRun
from trainables.workers import ray_processes

CONFIG = TRIALS["finished"]


def result(forget_quality: float) -> dict[str, Any]:
    metrics = {"forget_quality": forget_quality, "model_utility": 0.5}
    return {**RESULT_FIELDS, "id": CONFIG.id(), "metrics": metrics, "config": CONFIG.model_dump(mode="json")}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The trials that are really run, none of which takes any time."""
    begun: list[str] = []

    def events(run: TrialRun) -> Iterator[dict[str, Any]]:
        begun.append(run.trial.id())
        yield {"phase": "done", "result": result(-2.0)}

    monkeypatch.setattr(TrialRun, "run_and_yield_events", events)
    monkeypatch.setattr(ray_processes, "TUNE_REPORT_INTERVAL_SECONDS", 0.01)
    return begun


def actor(store: Storage) -> ray_processes.OneRankTrialActor:
    return ray_processes.OneRankTrialActor({"trial": CONFIG.model_dump_json(), "storage": str(store.root)})


def test_trial_with_a_result_does_not_run_again(store: Storage, runs: list[str]) -> None:
    """Its worker was killed between the result and the end of the trial: what that left is removed."""
    folder = store.trial(CONFIG.id())
    atomic_files.write_json(folder / RESULT, result(-1.0))
    atomic_files.write_parquet_rows(folder / STEPS, [{"step": 1}])
    for name in ("checkpoint/step-2/weights", "evaluations/2.json", PROGRESS, ".steps.parquet.0a1b2c3d"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("left")
    assert (actor(store).step(), runs) == ({"done": True}, [])
    assert {path.name for path in folder.iterdir()} == {RESULT, STEPS}


def test_trial_waits_for_the_process_that_runs_it(store: Storage, runs: list[str]) -> None:
    """One of another machine and this one itself are not waited for."""
    folder, mine = store.trial(CONFIG.id()), process_identity.identify_self()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as another:
        other = mine | {"pid": another.pid, "born": psutil.Process(another.pid).create_time()}
        for written in (other | {"place": "elsewhere"}, mine, {}, other):
            atomic_files.write_json(folder / PROGRESS, written)
            assert progress.is_run_by_other_process_here(folder) is (written is other), written
        worker = actor(store)
        assert [worker.step() for _ in range(3)] == [{"done": False}] * 3
        assert runs == []
        another.kill()
    assert worker.step()["done"]
    assert runs == [CONFIG.id()]


class Cycle:
    itself: Any


@pytest.mark.usefixtures("runs")
def test_what_a_stopped_trial_has_left_in_cycles_is_freed(store: Storage) -> None:
    """Such as DeepSpeed's engine, with its GPU memory, though what lies there is not collected from the next one on."""
    worker, left = actor(store), weakref.WeakSet[Any]()
    gc.unfreeze()  # what these tests freeze
    gc.disable()  # an old object is not looked at before
    left.add(engine := Cycle())
    engine.itself = engine
    del engine
    try:
        assert worker.reset_config(worker.given)
        assert not gc.get_freeze_count(), "a reset is quick"
        assert worker.step()["done"]
        assert gc.get_freeze_count()
        gc.collect()
        assert not left
    finally:
        gc.enable()
