"""What MLflow shows of a trial while it runs, and what becomes of that when it ends or is killed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from platform.state.trial_outcomes import count_outcomes
from platform.tracking import background, tracker
from platform.tracking.background import Mirror, RunningTrial
from tests.support.tracked_store import TRIALS, all_runs, parent_of, run_of, series, write_result, write_sweep
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.trial.progress import Progress

TRIAL = TRIALS["missing"]


def note_step(store: Storage, step: int, **values: float) -> None:
    """Write the progress of a step as a trial that runs does."""
    progress = Progress(store.trial(TRIAL.id()), store, None)
    entry = {"loss": 0.5 * step, "retain_loss": math.nan, "rows": [1, 2]} | values
    progress.note({"phase": "training", "step": step, "steps": 3, "entry": entry})
    progress._write()


def test_a_running_trial_has_curves_and_its_result_replaces_them(copied: tuple[Storage, Any]) -> None:
    store, client = copied
    mirrored, number = tracker.open_tracker(write_sweep(store), store), len(all_runs(client))
    mirrored.log_step(TRIAL)
    assert len(all_runs(client)) == number  # it has not trained yet
    for step in (1, 1, 2):
        note_step(store, step, cos_before=-0.25)
        mirrored.log_step(TRIAL)
    shown = run_of(client, "missing")
    assert (shown.info.status, shown.info.run_name) == ("RUNNING", TRIAL.label())
    assert shown.data.tags["mlflow.parentRunId"] == parent_of(client).info.run_id
    assert (shown.data.params["method"], shown.data.tags["seed"]) == ("ga", "2")
    assert series(client, shown, "train/loss") == [(1, 0.5), (2, 1.0)]
    assert series(client, shown, "train/cos_before") == [(1, -0.25), (2, -0.25)]
    assert "train/retain_loss" not in shown.data.metrics
    write_result(store, TRIAL, "finished")
    mirrored.log_trial(TRIAL.id())
    whole = run_of(client, "missing")
    assert (whole.info.run_id, whole.info.status) == (shown.info.run_id, "FINISHED")
    assert series(client, whole, "train/loss") == [(1, -0.5), (2, -1.0), (3, -1.5)]
    assert len(client.get_metric_history(whole.info.run_id, "train/loss")) == 3
    assert len(all_runs(client)) == number + 1


def test_a_server_has_one_run_of_a_trial_that_it_saw_running(
    copied: tuple[Storage, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, client = copied
    mirrored, number = tracker.open_tracker(write_sweep(store), store), len(all_runs(client))
    mirrored.own = False
    note_step(store, 1)
    mirrored.log_step(TRIAL)
    write_result(store, TRIAL, "finished")
    mirrored.log_trial(TRIAL.id())
    assert series(client, run_of(client, "missing"), "train/loss") == [(1, -0.5), (2, -1.0), (3, -1.5)]
    assert len(all_runs(client)) == number + 1


def test_a_killed_trial_is_shown_as_killed_and_goes_on_in_its_run(copied: tuple[Storage, Any]) -> None:
    store, client = copied
    first = tracker.open_tracker(write_sweep(store), store)
    note_step(store, 1)
    first.log_step(TRIAL)
    first.finish(count_outcomes(first.sweep, store))
    killed = run_of(client, "missing")
    assert killed.info.status == "KILLED"
    second = tracker.open_tracker(write_sweep(store), store)
    note_step(store, 2)
    second.log_step(TRIAL)
    again = run_of(client, "missing")
    assert (again.info.run_id, again.info.status) == (killed.info.run_id, "RUNNING")
    assert series(client, again, "train/loss") == [(1, 0.5), (2, 1.0)]


def test_points_become_rarer_with_the_time_that_a_trial_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 10 s at first and at most 30 in an hour, each of which costs the driver some milliseconds."""
    clock = [0.0]
    monkeypatch.setattr(background.time, "monotonic", lambda: clock[0])
    running, shown = RunningTrial(TRIAL, started=0.0), []
    for second in range(0, 3600, 5):
        clock[0] = float(second)
        if running.is_due():
            shown.append(second)
    assert shown[:4] == [10, 20, 30, 40]
    assert shown[-1] > 2900
    assert len(shown) <= 30


def test_the_mirror_shows_steps_until_a_trial_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "CURVE_SECONDS", 0.0)
    calls = []

    class Recorder:
        def log_step(self, trial: Trial) -> None:
            calls.append(("step", trial.seed))

        def log_trial(self, trial_id: str) -> None:
            calls.append(("result", trial_id))

    recorder: Any = Recorder()
    mirror = Mirror(lambda: recorder)
    mirror.start_trial(TRIAL)
    mirror.running[TRIAL.id()].next = 0.0
    mirror._send()
    mirror.add_trial(TRIAL.id())
    mirror._send()
    assert calls == [("step", 2), ("result", TRIAL.id())]
