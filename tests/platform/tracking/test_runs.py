"""MLflow as a view of the storage: what its runs show of one sweep, once and again."""

import contextlib
import json
import shutil
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from platform.tracking import __main__ as command
from platform.tracking.__main__ import sync_sweep_to_mlflow
from platform.tracking.mirror import start_mlflow_mirror
from platform.tracking.runs import open_mlflow_runs
from tests.support.starts import assert_refused, invoke
from tests.support.tracked_store import (
    TRIALS,
    all_runs,
    parent_of,
    run_of,
    series,
    write_result,
    write_store,
    write_sweep,
)
from trainables.common import process_identity
from trainables.common.errors import InputError
from trainables.common.redaction import redact
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.trial.progress import ProgressFile

DONE = ("finished", "rectified", "diverged", "failed")
TRIAL = TRIALS["missing"]
LATER = "2026-11-21T08:00:00+00:00"
Copied = tuple[Storage, Any]


def client_of(store: Storage) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{store.root / 'mlflow.db'}")


@pytest.fixture(scope="session")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """Return a storage whose sweep was synced once; nobody changes it."""
    store = write_store(tmp_path_factory.mktemp("tracking"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        assert sync_sweep_to_mlflow(write_sweep(store), store) == 4
    return store


@pytest.fixture(scope="session")
def client(tracked: Storage) -> Any:
    return client_of(tracked)


@pytest.fixture
def copied(tracked: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copied:
    """Return a copy of the synced storage with a client of its own."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copytree(tracked.root, tmp_path / "copy")
    copy = Storage(tmp_path / "copy")
    sync_sweep_to_mlflow(write_sweep(copy), copy)  # an experiment of its own: MLflow moves no files
    return copy, client_of(copy)


def counts(**given: int) -> dict[str, int]:
    names = ("finished", "collapsed", "diverged", "failed", "out_of_memory", "lost", "missing")
    return {"trials/total": 5, **{f"trials/{name}": given.get(name, 0) for name in names}}


def everything(client: Any) -> dict[str, Any]:
    """Return all that a person can see of the trials' runs, every point of every series included."""
    return {
        run.info.run_id: (run.info.status, run.data.params, run.data.tags, points(client, run))
        for run in all_runs(client)
        if run.data.tags.get("role") != "parent"
    }


def points(client: Any, run: Any) -> dict[str, list[tuple[int, float]]]:
    return {name: series(client, run, name) for name in run.data.metrics}


def write_progress(store: Storage, *steps: int, **given: Any) -> ProgressFile:
    """Write the progress of an attempt that has done these steps."""
    identity = process_identity.identify_self() | {"started": "2026-11-20T10:00:00+00:00"} | given
    progress = ProgressFile(store.trial(TRIAL.id()), store, **identity)
    for step in steps:
        entry = {"loss": -0.5 * step, "retain_loss": float("nan"), "cos_before": 0.25, "rows": [1, 2]}
        progress.note_event({"phase": "training", "step": step, "steps": 3, "entry": entry})
    progress.write()
    return progress


def test_one_parent_and_one_child_for_each_result(client: Any) -> None:
    parent = parent_of(client)
    assert (parent.info.run_name, parent.info.status) == ("tiny-0a1b2c3d", "KILLED")  # one trial is missing
    told = {"strategy": "paper", "command": "python -m platform.sweep tiny"}
    assert told.items() <= parent.data.tags.items()
    assert json.loads(parent.data.tags["axes"])["training.lr"] == [0.0004]
    assert parent.data.metrics == counts(finished=2, diverged=1, failed=1, missing=1)
    children = [run for run in all_runs(client) if run.info.run_id != parent.info.run_id]
    assert sorted((run.data.tags["trial_id"], run.info.run_name) for run in children) == sorted(
        (TRIALS[name].id(), TRIALS[name].label()) for name in DONE
    )
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}


def test_a_run_shows_configuration_numbers_series_and_outcome(client: Any, tracked: Storage) -> None:
    """MLflow's columns show a series' last step, and step 2 was chosen of 3: evaluations by step are apart."""
    run, plain, diverged, failed = (run_of(client, name) for name in ("rectified", "finished", "diverged", "failed"))
    expected = {"method": "npo", "rectifier.gamma": "0.8", "rectifier.tau": "1.0", "seed": "0"}
    expected |= {"training.lr": "0.0004", "benchmark.fingerprint": "files:0"}
    expected |= {"objective.beta": "none", "constants.beta": "0.1", "constants.forget_coefficient": "1.0"}
    assert expected.items() <= run.data.params.items()
    assert "constants.alpha" not in run.data.params, "RMU's"
    shown = {"eval/forget_quality": -2.5, "eval/model_utility": 0.6, "time/total": 9.5}
    assert shown.items() <= run.data.metrics.items()
    assert not {"eval/forget_quality_ks", "train/coefficient"} & run.data.metrics.keys()
    values = {"loss": [-0.5, -1.0, -1.5], "retain_loss": [2.0, 3.0, 4.0], "skipped": [0, 1, 0], "rectified": [1, 1, 1]}
    for name, column in values.items():
        assert series(client, run, f"train/{name}") == list(enumerate(column, start=1)), name
    assert series(client, plain, "eval_by_step/model_utility") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert (plain.data.tags["chosen_step"], plain.info.end_time - plain.info.start_time) == ("2", 9500)
    assert [one.info.status for one in (plain, diverged, failed)] == ["FINISHED", "FINISHED", "FAILED"]
    assert [one.data.tags.get("failure") for one in (plain, diverged, failed)] == [
        None,
        "loss is nan at step 3",
        "no space",
    ]
    assert [item.path for item in client.list_artifacts(plain.info.run_id)] == ["result.json"]
    assert Path(plain.info.artifact_uri).is_relative_to(tracked.root)
    assert not (tracked.root / "mlruns").exists()


def test_the_link_finds_the_trials_best_first(copied: Copied) -> None:
    """By what MLflow's page asks of its server: runs of the sweep's trials, by the first goal."""
    store, client = copied
    mirror = start_mlflow_mirror(write_sweep(store), store)
    mirror.close()
    path, _, query = redact(mirror.runs.page if mirror.runs else "").partition("?")  # as it is printed
    asked = {name: value for name, (value,) in parse_qs(query).items()}
    order = f"{asked['orderByKey']} {'ASC' if asked['orderByAsc'] == 'true' else 'DESC'}"
    found = client.search_runs([path.split("/")[2]], asked["searchFilter"], order_by=[order])
    values = [run.data.metrics["eval/forget_quality"] for run in found if "eval/forget_quality" in run.data.metrics]
    ids = [sorted(run.info.run_id for run in runs) for runs in ([*found, parent_of(client)], all_runs(client))]
    assert ids[0] == ids[1]
    assert values == sorted(values, reverse=True) != []


def test_durations_are_those_of_the_trials(copied: Copied) -> None:
    """Also of a sweep that is begun again with nothing to do, and of a trial that was killed."""
    store, client = copied
    runs = open_mlflow_runs(write_sweep(store), store)
    assert parent_of(client).info.status == "RUNNING"
    progress, last = write_progress(store, 1), datetime.fromisoformat("2026-11-20T10:00:30+00:00").timestamp()
    runs.log_curves(TRIAL)
    atomic_files.write_json(progress.path, (atomic_files.read_json(progress.path) or {}) | {"beat": last})
    sync_sweep_to_mlflow(write_sweep(store), store)
    for _ in range(2):
        parent, killed = parent_of(client).info, run_of(client, "missing").info
        assert (killed.status, parent.status) == ("KILLED", "KILLED")
        assert parent.end_time == killed.end_time == 1000 * last
        assert parent.end_time - parent.start_time == 3_630_000  # the sweep was made at 9
        sync_sweep_to_mlflow(write_sweep(store), store)


def test_trials_that_ran_again_have_one_run_without_traces_of_the_first(copied: Copied) -> None:
    """And the parent tells what is true now: an Optuna study at its budget leaves points that nobody means to run."""
    store, client = copied
    number = len(all_runs(client))
    for name in ("failed", "rectified"):
        write_result(store, TRIALS[name], "finished", started=LATER)
    sync_sweep_to_mlflow(write_sweep(store).model_copy(update={"trial_budget": 4}), store)
    assert len(all_runs(client)) == number
    for name in ("failed", "rectified"):
        run = run_of(client, name)
        assert (run.info.status, run.data.tags["outcome"]) == ("FINISHED", "finished")
        assert "failure" not in run.data.tags
        assert [step for step, _ in series(client, run, "train/loss")] == [1, 2, 3]
    parent = parent_of(client)
    assert (parent.info.status, parent.data.metrics) == ("FINISHED", counts(finished=3, diverged=1, missing=1))


def test_a_sweep_that_is_logged_again_changes_nothing_and_doubled_runs_become_one(copied: Copied) -> None:
    """As MLflow's client doubles them where a server answers too late. The complete one is kept."""
    store, client = copied
    before, parent = everything(client), parent_of(client)
    for run in (run_of(client, "finished"), run_of(client, "failed"), parent_of(client)):
        client.create_run(run.info.experiment_id, tags=run.data.tags)
    assert len(all_runs(client)) == len(before) + 1 + 3
    assert sync_sweep_to_mlflow(write_sweep(store), store) == 4
    assert everything(client) == before
    again = parent_of(client)
    assert (again.info.run_id, again.data.tags) == (parent.info.run_id, parent.data.tags)


def test_a_running_trial_has_curves_and_its_result_completes_its_run(copied: Copied) -> None:
    """With a person's note, and no point twice."""
    store, client = copied
    runs, number = open_mlflow_runs(write_sweep(store), store), len(all_runs(client))
    for steps in ((), (1,), (1,), (1, 2)):
        write_progress(store, *steps)
        runs.log_curves(TRIAL)
        assert len(all_runs(client)) == number + bool(steps)
    shown = run_of(client, "missing")
    assert (shown.info.status, shown.info.run_name) == ("RUNNING", TRIAL.label())
    assert (shown.data.params["method"], shown.data.tags["seed"]) == ("ga", "2")
    assert points(client, shown) == {"train/loss": [(1, -0.5), (2, -1.0)], "train/cos_before": [(1, 0.25), (2, 0.25)]}
    client.set_tag(shown.info.run_id, "mlflow.note.content", "Look at this one.")
    write_result(store, TRIAL, "finished")
    runs.log_result(TRIAL.id())
    whole = run_of(client, "missing")
    assert (whole.info.run_id, whole.info.status) == (shown.info.run_id, "FINISHED")
    assert series(client, whole, "train/loss") == [(1, -0.5), (2, -1.0), (3, -1.5)]
    assert whole.data.tags["mlflow.note.content"] == "Look at this one."


def test_another_attempt_of_a_killed_trial_has_a_run_of_its_own(copied: Copied) -> None:
    store, client = copied
    sweep = write_sweep(store)
    first, number = open_mlflow_runs(sweep, store), len(all_runs(client))
    progress = write_progress(store, 1, 2)
    first.log_curves(TRIAL)
    dead = (atomic_files.read_json(progress.path) or {}) | {"born": 0.0}
    atomic_files.write_json(progress.path, dead)
    sync_sweep_to_mlflow(sweep, store)
    second = open_mlflow_runs(sweep, store)
    second.log_curves(TRIAL)
    assert run_of(client, "missing").info.status == "KILLED"
    for steps in ((3,), (3, 4)):  # from a checkpoint
        write_progress(store, *steps, started=LATER)
        second.log_curves(TRIAL)
        again = run_of(client, "missing")
        assert (again.info.status, again.info.end_time) == ("RUNNING", None)
        assert series(client, again, "train/loss") == [(step, -0.5 * step) for step in steps]
    assert len(all_runs(client)) == number + 1


def test_report_and_kept_weights_are_shown(copied: Copied) -> None:
    store, client = copied
    folder = store.trial(TRIALS["finished"].id()) / "weights"
    folder.mkdir()
    report = store.root / "reports" / "tiny-0a1b2c3d"
    for name in ("figures/tradeoff.svg", "index.html"):
        (report / name).parent.mkdir(parents=True, exist_ok=True)
        (report / name).write_text("<p>A report.</p>")
    sync_sweep_to_mlflow(write_sweep(store), store)
    run, parent = run_of(client, "finished"), parent_of(client).info.run_id
    assert run.data.tags["checkpoint"] == folder.as_uri()
    assert "checkpoint" not in run_of(client, "rectified").data.tags
    assert {item.path for item in client.list_artifacts(parent, "report")} == {"report/figures", "report/index.html"}
    folder.rmdir()
    sync_sweep_to_mlflow(write_sweep(store), store)
    assert run_of(client, "finished").data.tags["checkpoint"] == ""


def test_a_copied_storage_is_synced_into_its_own_experiment(copied: Copied, tracked: Storage) -> None:
    """The files of the original's runs stay where they were made."""
    store, client = copied
    done = invoke(command.main, "sync", "tiny", "--storage", store.root)
    assert (done.exit_code, done.stdout) == (0, f"4 trials in sqlite:///{store.root / 'mlflow.db'}\n")
    assert {Path(run.info.artifact_uri).parents[2] for run in all_runs(client)} == {store.root}
    old = {one.artifact_location for one in client.search_experiments() if one.name.startswith("tiny in")}
    assert old == {str(tracked.root / "mlartifacts")}
    for action, name, message in (("sync", "tinny", "no sweep 'tinny' in "), ("sink", "tiny", "unknown action 'sink'")):
        assert_refused(invoke(command.main, action, name, "--storage", store.root), f"error: {message}")


def test_runs_whose_files_would_lie_elsewhere_are_left_alone(copied: Copied, tmp_path: Path) -> None:
    """A stranger's database may say so; MLflow would write there."""
    store, _ = copied
    for change in (f"'{tmp_path}/elsewhere/' || run_uuid", f"'{store.root}/mlartifacts/../../elsewhere/' || run_uuid"):
        with contextlib.closing(sqlite3.connect(store.root / "mlflow.db")) as database, database:
            database.execute(f"UPDATE runs SET artifact_uri = {change}")
        assert sync_sweep_to_mlflow(write_sweep(store), store) == 4
        assert not (tmp_path / "elsewhere").exists()


def test_a_database_is_whole_or_named(tmp_path: Path) -> None:
    """MLflow makes its tables in dozens of migrations; what a kill amid them leaves is made anew."""
    store = write_store(tmp_path)
    half = store.root / "sweeps" / ".mlflow.db"
    half.write_bytes(b"half")
    assert sync_sweep_to_mlflow(write_sweep(store), store) == 4
    assert not half.exists()
    (store.root / "mlflow.db").write_bytes(b"not a database")
    with pytest.raises(InputError, match=r"mlflow.db: .*file is not a database; if it is a damaged file, remove that"):
        sync_sweep_to_mlflow(write_sweep(store), store)
