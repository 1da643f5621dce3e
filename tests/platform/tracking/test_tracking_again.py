"""A sweep that is sent to MLflow again: nothing doubled, nothing left of what was run again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from platform.state import lock
from platform.state.sweep_state import count_outcomes
from platform.tracking import tracker as tracking_tracker
from platform.tracking.mirror import Mirror
from tests.support import synced
from tests.support.synced import all_runs, everything, parent_of, run_of
from tests.support.tracked_store import TRIALS, write_result, write_sweep
from trainables.common.errors import InputError
from trainables.storage.base import Storage

store, client = synced.store, synced.client


def test_syncing_twice_changes_nothing(client: Any, store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    before = everything(client)
    assert tracking_tracker.sync(write_sweep(store), store) == 4
    after = everything(client)
    assert after.keys() == before.keys()
    for name, (status, params, tags, series) in before.items():
        assert after[name][:3] == (status, params, tags)
        if tags.get("role") != "parent":
            assert after[name][3] == series, tags["outcome"]


@pytest.mark.parametrize("name", ["failed", "rectified"])
def test_trial_that_ran_again_has_one_run_without_traces_of_the_first(
    client: Any, store: Storage, tmp_path: Path, name: str
) -> None:
    """In a copy of the storage: the trial was run again and is finished now."""
    from mlflow import MlflowClient

    shutil.copytree(store.root, tmp_path / "copy")
    copy = Storage(tmp_path / "copy")
    write_result(copy, TRIALS[name], "finished", started="2026-11-21T08:00:00+00:00")
    tracking_tracker.sync(write_sweep(copy), copy)
    after = MlflowClient(tracking_uri=f"sqlite:///{copy.root / 'mlflow.db'}")
    assert len(all_runs(after)) == len(all_runs(client))
    run = run_of(after, name)
    assert run.info.status == "FINISHED"
    assert run.data.tags["outcome"] == "finished"
    assert run.data.tags["mlflow.parentRunId"] == parent_of(after).info.run_id
    assert "failure" not in run.data.tags
    assert run.data.metrics["eval/model_utility"] == 0.6
    history = after.get_metric_history(run.info.run_id, "train/loss")
    assert [point.step for point in history] == [1, 2, 3]


def test_doubled_runs_become_one_again(client: Any, store: Storage, tmp_path: Path) -> None:
    """In a copy: of one trial's runs the complete one is kept, and of the parents the one that was closed."""
    from mlflow import MlflowClient

    shutil.copytree(store.root, tmp_path / "copy")
    copy = Storage(tmp_path / "copy")
    after = MlflowClient(tracking_uri=f"sqlite:///{copy.root / 'mlflow.db'}")
    before = {run.info.run_id for run in all_runs(client)}
    for run in (run_of(after, "finished"), run_of(after, "failed"), parent_of(after)):
        tags = {name: value for name, value in run.data.tags.items() if name not in ("started", "mirrored")}
        after.create_run(run.info.experiment_id, tags=tags)
    assert len(all_runs(after)) == len(before) + 3
    tracking_tracker.sync(write_sweep(copy), copy)
    assert {run.info.run_id for run in all_runs(after)} == before
    assert run_of(after, "finished").data.metrics["eval/forget_quality"] == -2.5


def test_requests_that_made_two_runs_leave_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As MLflow's client does where a server answers too late, in a driver; the parent's twin is the later one."""
    from mlflow import MlflowClient

    make = MlflowClient.create_run

    def twice(*values: Any, **given: Any) -> Any:
        make(*values, **given)
        return make(*values, **given)

    monkeypatch.setattr(MlflowClient, "create_run", twice)
    copy = Storage(tmp_path)
    write_result(copy, TRIALS["finished"], "finished")
    sweep = write_sweep(copy)
    tracker = tracking_tracker.connect(sweep, copy)
    tracker.trial(TRIALS["finished"].id())
    assert len(all_runs(tracker.client)) == 4
    tracker.finish(count_outcomes(sweep, copy))
    (run,) = (run for run in all_runs(tracker.client) if run.info.run_id != tracker.parent)
    assert (run.info.status, run.data.tags["mlflow.parentRunId"]) == ("FINISHED", tracker.parent)


def test_sweeps_of_one_name_that_share_trials_have_a_run_each(client: Any, store: Storage, tmp_path: Path) -> None:
    shutil.copytree(store.root, tmp_path / "copy")
    copy = Storage(tmp_path / "copy")
    tracker = tracking_tracker.connect(write_sweep(copy, digest="ffffffff"), copy)
    for trial in TRIALS.values():
        tracker.trial(trial.id())
    children = [run for run in all_runs(tracker.client) if run.data.tags.get("mlflow.parentRunId") == tracker.parent]
    assert {run.data.tags["trial_id"] for run in children} == set(tracker.found)
    assert len(all_runs(tracker.client)) == 2 * len(all_runs(client))


def test_sync_is_refused_while_a_driver_runs(tmp_path: Path) -> None:
    sweep, copy = write_sweep(Storage(tmp_path)), Storage(tmp_path)
    with (
        lock.hold(copy, copy.lock("tiny", "0a1b2c3d"), "python -m platform.sweep tiny"),
        pytest.raises(InputError, match=r"tiny-0a1b2c3d is being run by process .*; wait for its end"),
    ):
        tracking_tracker.sync(sweep, copy)
    assert not (tmp_path / "mlflow.db").exists()


def test_mirror_feeds_the_same_runs_from_its_thread(client: Any, store: Storage) -> None:
    before = {run.info.run_id for run in all_runs(client)}
    mirror = Mirror(lambda: tracking_tracker.connect(write_sweep(store), store))
    mirror.start()
    for trial in TRIALS.values():
        mirror.trial(trial.id())
    assert mirror.close(count_outcomes(write_sweep(store), store)) is None
    assert {run.info.run_id for run in all_runs(client)} == before
