"""A sweep that is sent to MLflow again: nothing doubled, nothing left of what was run again."""

from __future__ import annotations

import contextlib
import json
import operator
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from platform.schedule import dashboard_journal
from platform.state import lock
from platform.state.trial_outcomes import count_outcomes
from platform.tracking import database, tracker
from platform.tracking.background import Mirror
from tests.support.tracked_store import TRIALS, all_runs, parent_of, run_of, series, write_result, write_sweep
from trainables.common.errors import InputError
from trainables.storage.folder_storage import Storage


def everything(client: Any) -> dict[str, Any]:
    """Return all that a person can see of the trials' runs, every point of every series included."""
    return {
        run.info.run_id: (
            run.info.status,
            run.data.params,
            run.data.tags,
            {name: series(client, run, name) for name in run.data.metrics},
        )
        for run in all_runs(client)
        if run.data.tags.get("role") != "parent"
    }


def test_syncing_and_mirroring_again_change_nothing(copied: tuple[Storage, Any]) -> None:
    """Where MLflow shows all of it; the parent alone has one more point of its counts."""
    store, client = copied
    before, parent = everything(client), parent_of(client)
    assert tracker.sync(write_sweep(store), store) == 4
    mirror = Mirror(lambda: tracker.open_tracker(write_sweep(store), store))
    mirror.thread.start()
    for trial in TRIALS.values():
        mirror.add_trial(trial.id())
    assert mirror.close(count_outcomes(write_sweep(store), store)) is None
    (view,) = (name for name in client.get_experiment(mirror.page.split("/")[2]).tags if "sharedViewState" in name)
    assert mirror.page.endswith(f"/runs?viewStateShareKey={view.rpartition('.')[2]}&compareRunsMode=CHART")
    assert everything(client) == before
    for part in ("info.run_id", "info.status", "data.tags"):
        assert operator.attrgetter(part)(parent_of(client)) == operator.attrgetter(part)(parent)


def stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_copied_storage_and_a_moved_one_keep_to_themselves(copied: tuple[Storage, Any], tmp_path: Path) -> None:
    """MLflow knows absolute places only: those of the database become those of the storage that it lies in."""
    original, _ = copied
    before = stamps(original.root)
    for name, place in (("failed", shutil.copytree), ("rectified", Path.rename)):
        source = original.root if place is shutil.copytree else tmp_path / "failed"
        store = Storage(Path(place(source, tmp_path / name)))  # type: ignore[operator]
        write_result(store, TRIALS[name], "finished", started="2026-11-21T08:00:00+00:00")
        assert tracker.sync(write_sweep(store), store) == 4
        runs = all_runs(MlflowClient(tracking_uri=database.tracking_uri(store)))
        assert len(runs) == 5
        assert all(Path(run.info.artifact_uri).is_relative_to(store.root / "mlartifacts") for run in runs)
        shown = [run for run in runs if run.data.tags.get("trial_id") == TRIALS[name].id()]
        assert (Path(shown[0].info.artifact_uri) / "result.json").is_file()
        assert stamps(original.root) == before
    assert not (tmp_path / "failed").exists()


def test_an_experiment_that_a_server_made_gets_its_artifacts_into_the_storage(copied: tuple[Storage, Any]) -> None:
    """MLflow refuses the server's places, `mlflow-artifacts:/1`, where it talks to the database itself."""
    store, client = copied
    with contextlib.closing(sqlite3.connect(store.root / "mlflow.db")) as file, file:
        file.execute("update experiments set artifact_location = 'mlflow-artifacts:/' || experiment_id")
        file.execute(
            "update runs set artifact_uri = 'mlflow-artifacts:/' || experiment_id || '/' || run_uuid || '/artifacts'"
        )
    write_result(store, TRIALS["failed"], "finished", started="2026-11-21T08:00:00+00:00")
    tracker.sync(write_sweep(store), store)
    places = {run.info.run_id: run.info.artifact_uri for run in all_runs(client)}
    assert places == {key: str(store.root / "mlartifacts" / key / "artifacts") for key in places}
    assert (Path(places[run_of(client, "failed").info.run_id]) / "result.json").is_file()


@pytest.mark.parametrize("damage", [b"not a database", None], ids=["other bytes", "cut"])
def test_a_damaged_database_is_set_aside_and_made_again(
    copied: tuple[Storage, Any], tmp_path: Path, damage: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Storage(Path(shutil.copytree(copied[0].root, tmp_path / "damaged")))
    file = store.root / "mlflow.db"
    file.write_bytes(file.read_bytes()[:20_000] if damage is None else damage)
    assert tracker.sync(write_sweep(store), store) == 4
    (aside,) = (store.root / "set_aside").glob("*/mlflow.db")
    assert f"damaged: {file}; set aside in {aside.parent} and made again" in capsys.readouterr().out
    assert len(all_runs(MlflowClient(tracking_uri=database.tracking_uri(store)))) == 5


def test_trials_that_ran_again_have_one_run_without_traces_of_the_first(copied: tuple[Storage, Any]) -> None:
    store, client = copied
    number = len(all_runs(client))
    for name in ("failed", "rectified"):
        write_result(store, TRIALS[name], "finished", started="2026-11-21T08:00:00+00:00")
    tracker.sync(write_sweep(store), store)
    assert len(all_runs(client)) == number
    for name in ("failed", "rectified"):
        run = run_of(client, name)
        assert (run.info.status, run.data.tags["outcome"]) == ("FINISHED", "finished")
        assert run.data.tags["mlflow.parentRunId"] == parent_of(client).info.run_id
        assert "failure" not in run.data.tags
        assert run.data.metrics["eval/model_utility"] == 0.6
        assert [step for step, _ in series(client, run, "train/loss")] == [1, 2, 3]


def test_doubled_runs_become_one_again(copied: tuple[Storage, Any]) -> None:
    """Of one trial's runs the complete one is kept, and of the parents the one that was closed."""
    store, client = copied
    before = {run.info.run_id for run in all_runs(client)}
    for run in (run_of(client, "finished"), run_of(client, "failed"), parent_of(client)):
        tags = {name: value for name, value in run.data.tags.items() if name != "started"}
        client.create_run(run.info.experiment_id, tags=tags)
    assert len(all_runs(client)) == len(before) + 3
    tracker.sync(write_sweep(store), store)
    assert {run.info.run_id for run in all_runs(client)} == before


def test_a_copy_that_fails_leaves_no_run_and_the_earlier_one(
    copied: tuple[Storage, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep has another's name and trials, and a run of its own for each, however often it was tried."""
    store, client = copied
    copy, shown = shutil.copyfile, everything(client)
    folders = set((store.root / "mlartifacts").iterdir())
    write_result(store, TRIALS["failed"], "finished", started="2026-11-21T08:00:00+00:00")
    monkeypatch.setattr(shutil, "copyfile", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    first, second = (tracker.open_tracker(write_sweep(store, digest), store) for digest in ("0a1b2c3d", "ffffffff"))
    for one in (first, second):
        with pytest.raises(OSError, match="no space"):
            one.log_trial(TRIALS["failed"].id())
    assert everything(client) == shown
    assert set((store.root / "mlartifacts").iterdir()) == folders
    monkeypatch.setattr(shutil, "copyfile", copy)
    for one in (first, second):
        for trial in TRIALS.values():
            one.log_trial(trial.id())
        children = [run for run in all_runs(client) if run.data.tags.get("mlflow.parentRunId") == one.parent]
        tried = sorted(trial.id() for name, trial in TRIALS.items() if name != "missing")
        assert sorted(run.data.tags["trial_id"] for run in children) == tried
        assert {run.data.tags["outcome"] for run in children} == {"finished", "diverged"}


@pytest.fixture
def server(copied: tuple[Storage, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Storage, Any]:
    """Return a storage whose runs go into a database that is not its own, by MLflow's client, and a client of it."""
    store, _ = copied
    tracker.sync(write_sweep(store), store)  # which makes the places of artifacts its own
    uri = f"sqlite:///{shutil.copyfile(store.root / 'mlflow.db', store.root / 'server.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return store, MlflowClient(tracking_uri=uri)


def rows_of(file: Path, run_id: str) -> dict[str, list[str]]:
    """Return all that a database has of a run, without ids."""
    found = {}
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.row_factory = sqlite3.Row
        for table in ("runs", "tags", "params", "metrics", "latest_metrics"):
            rows = [dict(row) for row in database.execute(f"select * from {table} where run_uuid = ?", [run_id])]
            found[table] = sorted(str(row).replace(run_id, "ID") for row in rows)
    return found


def test_runs_written_at_once_are_those_that_the_client_writes(server: tuple[Storage, Any]) -> None:
    """Every row of MLflow's tables, with all points of all series; the sweep's own two tags alone differ."""
    store, client = server
    second = tracker.open_tracker(write_sweep(store, digest="ffffffff"), store)
    second.log_trials(
        {key: store.result(key) or {} for key in (TRIALS[name].id() for name in TRIALS) if store.has(key)}
    )
    runs: dict[str, list[Any]] = {}
    for run in all_runs(client):
        runs.setdefault(run.data.tags.get("trial_id", "parent"), []).append(run)
    assert [len(runs.pop("parent")), *map(len, runs.values())] == [2] * 5
    for pair in runs.values():
        one, other = (rows_of(store.root / "server.db", run.info.run_id) for run in pair)
        different = set(one.pop("tags")) ^ set(other.pop("tags"))
        assert one == other
        assert len(different) == 4
        assert all("sweep_id" in text or "mlflow.parentRunId" in text for text in different)
        assert len(one["metrics"]) > len(one["latest_metrics"]) > 0 or "FAILED" in one["runs"][0]


def test_requests_that_made_two_runs_leave_one(server: tuple[Storage, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As MLflow's client does where a server answers too late, in a driver; the parent's twin is the later one."""
    store, client = server
    number, create = len(all_runs(client)), MlflowClient.create_run

    def create_twice(*values: Any, **given: Any) -> Any:
        create(*values, **given)
        return create(*values, **given)

    monkeypatch.setattr(MlflowClient, "create_run", create_twice)
    sweep = write_sweep(store, digest="ffffffff")
    first = tracker.open_tracker(sweep, store)
    first.log_trial(TRIALS["finished"].id())
    assert len(all_runs(client)) == number + 3
    first.finish(count_outcomes(sweep, store))
    assert len(all_runs(client)) == number + 2
    (run,) = [run for run in all_runs(client) if run.data.tags.get("mlflow.parentRunId") == first.parent]
    assert run.info.status == "FINISHED"
    experiment = client.get_experiment(first.experiment)
    for label, count in (("tiny-0a1b2c3d", 4), ("tiny-ffffffff", 1)):
        state = json.loads(json.loads(experiment.tags[f"mlflow.sharedViewState.{label}"])["state"])
        assert len(client.search_runs([first.experiment], state["searchFilter"])) == count, "of one sweep alone"


def test_the_journal_of_a_search_is_made_within_the_lock(
    copied: tuple[Storage, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = copied
    sweep, held = write_sweep(store), []

    def look(*_: object) -> None:
        held.append(lock.read_lock(store, store.lock(sweep.name, sweep.hash)) is not None)

    monkeypatch.setattr(dashboard_journal, "sync_journal", look)
    tracker.sync(sweep, store)
    assert held == [True]


def test_sync_is_refused_while_a_driver_runs(tmp_path: Path) -> None:
    sweep, store = write_sweep(Storage(tmp_path)), Storage(tmp_path)
    with (
        lock.acquire_lock(store, store.lock("tiny", "0a1b2c3d"), "python -m platform.sweep tiny"),
        pytest.raises(InputError, match=r"tiny-0a1b2c3d is being run by process .*; wait for its end"),
    ):
        tracker.sync(sweep, store)
    assert not (tmp_path / "mlflow.db").exists()
