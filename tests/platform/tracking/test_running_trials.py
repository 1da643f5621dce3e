"""What MLflow shows of a trial while it runs, and what becomes of that when it ends or is killed."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

from platform.state.trial_outcomes import count_outcomes
from platform.tracking import background, tracker
from platform.tracking.background import Mirror, RunningTrial
from platform.tracking.run_content import describe_curves
from tests.support.tracked_store import TRIALS, all_runs, parent_of, run_of, series, write_result, write_sweep
from trainables.common import process_identity
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.storage.names import PROGRESS
from trainables.storage.opening import open_storage
from trainables.trial.progress import Progress

TRIAL = TRIALS["missing"]
STARTED, SEEN = "2026-11-20T10:00:00+00:00", 1795169100
"""As ISO 8601, and five minutes later in seconds since 1970."""


def write_progress(store: Storage, *steps: int, **given: Any) -> Progress:
    """Write the progress of an attempt that has done these steps and evaluates its model now."""
    identity = process_identity.describe_self() | {"started": STARTED} | given
    progress = Progress(store.trial(TRIAL.id()), store, **identity)
    for step in steps:
        entry = {"loss": -0.5 * step, "retain_loss": math.nan, "cos_before": 0.25, "rows": [1, 2]}
        progress.note({"phase": "training", "step": step, "steps": 3, "entry": entry})
    progress.note({"phase": "evaluation", "step": 0, "steps": 3})
    progress.write()
    return progress


@pytest.mark.parametrize("own", [True, False], ids=["own database", "server"])
def test_a_running_trial_has_curves_and_its_result_completes_its_run(copied: tuple[Storage, Any], own: bool) -> None:
    """With a person's note, no point twice, and the times of the trial; also where the result comes at once after."""
    store, client = copied
    mirrored, number = tracker.open_tracker(write_sweep(store), store), len(all_runs(client))
    mirrored.own = own
    for steps in ((), (1,), (1,), (1, 2)):
        write_progress(store, *steps)
        mirrored.log_curves(TRIAL)
        assert len(all_runs(client)) == number + bool(steps)
    shown = run_of(client, "missing")
    assert (shown.info.status, shown.info.run_name) == ("RUNNING", TRIAL.label())
    assert shown.data.tags["mlflow.parentRunId"] == parent_of(client).info.run_id
    assert (shown.data.params["method"], shown.data.tags["seed"]) == ("ga", "2")
    assert series(client, shown, "train/loss") == [(1, -0.5), (2, -1.0)]
    assert series(client, shown, "train/cos_before") == [(1, 0.25), (2, 0.25)]
    assert "train/retain_loss" not in shown.data.metrics
    client.set_tag(shown.info.run_id, "mlflow.note.content", "Look at this one.")
    write_result(store, TRIAL, "finished")
    mirrored.log_trial(TRIAL.id())
    whole = run_of(client, "missing")
    assert (whole.info.run_id, whole.info.status) == (shown.info.run_id, "FINISHED")
    assert series(client, whole, "train/loss") == [(1, -0.5), (2, -1.0), (3, -1.5)]
    assert whole.data.metrics["eval/model_utility"] == 0.6
    assert whole.data.tags["mlflow.note.content"] == "Look at this one."
    assert whole.info.end_time - whole.info.start_time == 9500
    assert len(all_runs(client)) == number + 1


def test_a_result_of_other_steps_gets_a_run_of_its_own_on_a_server(copied: tuple[Storage, Any]) -> None:
    store, client = copied
    mirrored, number = tracker.open_tracker(write_sweep(store), store), len(all_runs(client))
    mirrored.own = False
    write_progress(store, 1, 7)
    mirrored.log_curves(TRIAL)
    write_result(store, TRIAL, "finished")
    mirrored.log_trial(TRIAL.id())
    assert series(client, run_of(client, "missing"), "train/loss") == [(1, -0.5), (2, -1.0), (3, -1.5)]
    assert len(all_runs(client)) == number + 1


def test_a_killed_trial_ends_when_it_was_last_seen_and_another_attempt_has_a_run_of_its_own(
    copied: tuple[Storage, Any],
) -> None:
    store, client = copied
    sweep = write_sweep(store)
    first, number = tracker.open_tracker(sweep, store), len(all_runs(client))
    progress = write_progress(store, 1, 2)
    first.log_curves(TRIAL)
    killed = run_of(client, "missing")
    dead = (atomic_files.read_json(progress.path) or {}) | {"beat": SEEN + 0.5, "born": 0.0}
    atomic_files.write_json(progress.path, dead)
    first.finish(count_outcomes(sweep, store))
    assert run_of(client, "missing").info.status == "KILLED"
    tracker.sync(sweep, store)
    ended = run_of(client, "missing")
    assert (ended.info.run_id, ended.info.status) == (killed.info.run_id, "KILLED")
    assert ended.info.end_time == SEEN * 1000 + 500
    (store.trial(TRIAL.id()) / PROGRESS).unlink()
    tracker.sync(sweep, store)
    assert run_of(client, "missing").info.end_time == ended.info.end_time
    second = tracker.open_tracker(sweep, store)
    atomic_files.write_json(progress.path, dead)
    second.log_curves(TRIAL)
    assert run_of(client, "missing").info.status == "KILLED"
    for steps in ((3,), (1,), (1, 2)):  # of a checkpoint, then from the start after its memory ran out
        write_progress(store, *steps)
        second.log_curves(TRIAL)
        again = run_of(client, "missing")
        assert (again.info.status, again.info.end_time) == ("RUNNING", None)
        assert series(client, again, "train/loss") == [(step, -0.5 * step) for step in steps]
    assert len(all_runs(client)) == number + 1


def test_a_request_that_is_lost_costs_neither_params_nor_points(
    copied: tuple[Storage, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, client = copied
    mirrored, number = tracker.open_tracker(write_sweep(store), store), len(all_runs(client))
    send, answers = mirrored.client.log_batch, iter([False, True, False, True])

    def lose_every_other(*values: Any) -> None:
        if not next(answers):
            raise ConnectionError("no answer")
        send(*values)

    monkeypatch.setattr(mirrored.client, "log_batch", lose_every_other)
    for steps in ((1,), (1, 2)):
        write_progress(store, *steps)
        with pytest.raises(ConnectionError):
            mirrored.log_curves(TRIAL)
        mirrored.log_curves(TRIAL)
        run = run_of(client, "missing")
        assert run.data.params["method"] == "ga"
        assert series(client, run, "train/loss") == [(step, -0.5 * step) for step in steps]
        assert len(all_runs(client)) == number + 1


def test_a_person_may_delete_the_run_of_a_running_trial(copied: tuple[Storage, Any]) -> None:
    """Before its sweep is stopped, and on a server before its result comes."""
    store, client = copied
    mirrored, number = tracker.open_tracker(write_sweep(store), store), len(all_runs(client))
    write_progress(store, 1)
    mirrored.log_curves(TRIAL)
    client.delete_run(run_of(client, "missing").info.run_id)
    mirrored.finish(count_outcomes(mirrored.sweep, store))
    assert parent_of(client).info.status == "KILLED"
    assert len(all_runs(client)) == number
    mirrored.own = False
    mirrored.log_curves(TRIAL)
    client.delete_run(run_of(client, "missing").info.run_id)
    write_result(store, TRIAL, "finished")
    mirrored.log_trial(TRIAL.id())
    assert run_of(client, "missing").info.status == "FINISHED"


def test_drivers_of_two_storages_leave_each_other_their_running_trials(
    copied: tuple[Storage, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sweep, on one server: the one that ends first ends its own."""
    store, client = copied
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store.root / 'mlflow.db'}")
    another = Storage(tmp_path / "another")
    trackers = [tracker.open_tracker(write_sweep(place), place) for place in (store, another)]
    for place, one in zip((store, another), trackers, strict=True):
        one.own = False
        write_progress(place, 1)
        one.log_curves(TRIAL)
    trackers[1].finish(count_outcomes(trackers[1].sweep, another))
    runs = [run for run in all_runs(client) if run.data.tags.get("trial_id") == TRIAL.id()]
    assert {run.data.tags["storage"]: run.info.status for run in runs} == {
        store.location: "RUNNING",
        another.location: "KILLED",
    }


def test_curves_of_a_trial_on_another_machine_come_through_the_bucket(
    copied: tuple[Storage, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the copy here is of an earlier attempt."""
    store, client = copied
    mirrored = tracker.open_tracker(write_sweep(store), store)
    copies = []
    for name in ("here", "there"):
        monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path / name))
        copies.append(open_storage(f"memory://{tmp_path.name}/runs"))
    mirrored.store, there = copies
    write_progress(mirrored.store, 3)
    progress = write_progress(there, 1, 2, place="another machine", pid=7)
    there.push(progress.path)
    mirrored.log_curves(TRIAL)
    assert series(client, run_of(client, "missing"), "train/loss") == [(1, -0.5), (2, -1.0)]


def test_a_damaged_progress_has_no_curves(tmp_path: Path) -> None:
    path = write_progress(Storage(tmp_path), 1, 2).path
    whole = atomic_files.read_json(path) or {}
    found = describe_curves(path.read_bytes())
    assert found is not None
    assert found.points[0] == ("train/loss", -0.5, 1)
    assert (found.dead, abs(found.seen / 1000 - time.time()) < 60) == (False, True)
    for damage in (
        {"points": []},
        {"points": 3},
        {"points": ["a"]},
        {"points": [{"loss": 1.0}]},
        {"points": [{"step": 1, "loss": "much"}]},
        {"points": [{"step": 1e999, "loss": 1.0}]},
        {"started": 7},
        {"beat": "late"},
    ):
        atomic_files.write_text(path, str(whole | damage).replace("'", '"').replace("None", "null"))
        assert describe_curves(path.read_bytes()) is None, damage
    assert [describe_curves(content) for content in (None, b"", b"[]", b"{}", b'{"points"')] == [None] * 5


def test_curves_are_shown_more_rarely_with_the_time_that_a_trial_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 10 s at first and at most 15 times in an hour, each of which costs the driver some milliseconds."""
    clock = [0.0]
    monkeypatch.setattr(background.time, "monotonic", lambda: clock[0])
    running, shown = RunningTrial(TRIAL, started=0.0), []
    for second in range(0, 3600, 5):
        clock[0] = float(second)
        if running.is_due():
            shown.append(second)
    assert shown[:4] == [10, 15, 25, 40]
    assert shown[-1] > 2300
    assert len(shown) <= 15


def test_results_come_before_curves_whose_failures_are_no_problem() -> None:
    """The first failure of a curve is the last of its round, and at the end of a sweep there are none."""
    calls: list[str] = []

    class Failing:
        def log_curves(self, trial: Trial) -> None:
            calls.append(f"curves of {trial.seed}")
            raise ConnectionError("no answer")

        def log_trial(self, trial_id: str) -> None:
            calls.append(trial_id)

    failing: Any = Failing()
    mirror = Mirror(lambda: failing)
    for trial in TRIALS.values():
        mirror.start_trial(trial)
        mirror.running[trial.id()].due = 0.0
    mirror.add_trial(TRIAL.id())
    mirror._send()
    assert calls == [TRIAL.id(), "curves of 0"]
    assert mirror.problem is None
    mirror._send()
    assert len(calls) == 3
    mirror.over.set()
    mirror._send()
    assert len(calls) == 3
