"""MLflow as a view of the storage: the same runs however often it is synced."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from platform.state.sweep_state import count_outcomes
from platform.tracking import tracker as tracking_tracker
from platform.tracking import views
from tests.support import synced
from tests.support.synced import all_runs, parent_of, run_of
from tests.support.tracked_store import TRIALS, write_result, write_sweep
from trainables.config.settings import Rectifier
from trainables.storage.base import Storage

store, client = synced.store, synced.client


RunModule = Callable[..., subprocess.CompletedProcess[str]]


def test_one_parent_and_one_child_for_each_result(client: Any) -> None:
    parent, runs = parent_of(client), all_runs(client)
    assert parent.info.run_name == "tiny-0a1b2c3d"
    children = [run for run in runs if run.info.run_id != parent.info.run_id]
    assert {run.data.tags["trial_id"] for run in children} == {
        TRIALS[name].id() for name in ("finished", "rectified", "diverged", "failed")
    }
    assert len(children) == 4
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert {run.info.run_name for run in children} == {
        TRIALS[name].label() for name in ("finished", "rectified", "diverged", "failed")
    }


def test_parent_tells_the_counts(client: Any) -> None:
    parent = parent_of(client)
    assert parent.info.status == "KILLED"  # one is missing
    assert parent.data.metrics == counts(finished=2, diverged=1, failed=1, missing=1)


def counts(**given: int) -> dict[str, int]:
    names = ("finished", "collapsed", "diverged", "failed", "out_of_memory", "lost", "missing")
    return {"trials/total": 5, **{f"trials/{name}": given.get(name, 0) for name in names}}


def test_parent_tells_what_is_true_now(
    client: Any, store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a copy: the trial that failed ran again, the missing one ran, by a clock that had been set back."""
    from mlflow import MlflowClient

    shutil.copytree(store.root, tmp_path / "copy")
    copy = Storage(tmp_path / "copy")
    monkeypatch.setattr(tracking_tracker.time, "time", lambda: 1.7e9)
    for name in ("failed", "missing"):
        write_result(copy, TRIALS[name], "finished", started="2026-11-21T08:00:00+00:00")
    tracking_tracker.sync(write_sweep(copy), copy)
    parent = parent_of(MlflowClient(tracking_uri=f"sqlite:///{copy.root / 'mlflow.db'}"))
    assert (parent.info.status, parent.data.metrics) == ("FINISHED", counts(finished=4, diverged=1))


def test_parent_runs_again_with_its_sweep(client: Any, store: Storage, tmp_path: Path) -> None:
    """And ends as finished where an Optuna study is at its budget, which leaves points that nobody means to run."""
    shutil.copytree(store.root, tmp_path / "copy")
    copy = Storage(tmp_path / "copy")
    tracker = tracking_tracker.connect({**write_sweep(copy), "target": 4}, copy)
    assert parent_of(tracker.client).info.status == "RUNNING"
    tracker.finish(count_outcomes(tracker.sweep, copy))
    assert parent_of(tracker.client).info.status == "FINISHED"


def test_params_are_the_whole_configuration(client: Any) -> None:
    params = run_of(client, "rectified").data.params
    assert params["method"] == "npo"
    assert params["rectifier.gamma"] == "0.8"
    assert params["rectifier.tau"] == "none"
    assert params["tau"] == "none"
    assert "tau" not in run_of(client, "finished").data.params  # which has no rectifier
    assert views.axes(Rectifier(name="clip", tau=0.01)) == {"tau": "≤ 0.01"}
    assert params["training.lr"] == "0.0004"
    assert params["benchmark.fingerprint"] == "files:0"
    assert params["seed"] == "0"


def test_metrics_and_series_are_those_of_the_storage(client: Any) -> None:
    run = run_of(client, "rectified")
    assert run.data.metrics["eval/forget_quality"] == -2.5
    assert run.data.metrics["eval/model_utility"] == 0.6
    assert run.data.metrics["time/total"] == 9.5
    assert "eval/forget_quality_ks" not in run.data.metrics
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(point.step, point.value) for point in history] == [(1, -0.5), (2, -1.0), (3, -1.5)]
    retain = client.get_metric_history(run.info.run_id, "train/retain_loss")
    assert [point.value for point in retain] == [2.0, 3.0, 4.0]
    assert "train/coefficient" not in run.data.metrics
    assert "train/retain_loss" not in run_of(client, "finished").data.metrics


def test_what_happened_at_a_step_is_a_series_of_numbers(client: Any) -> None:
    run = run_of(client, "rectified")
    for name, values in {"skipped": [0, 1, 0], "attempts": [1, 10, 1], "rectified": [1, 1, 1]}.items():
        history = client.get_metric_history(run.info.run_id, f"train/{name}")
        assert [point.value for point in history] == values, name
    plain = client.get_metric_history(run_of(client, "finished").info.run_id, "train/rectified")
    assert [point.value for point in plain] == [0, 0, 0]


def test_outcome_is_told(client: Any) -> None:
    for name, status in {"finished": "FINISHED", "diverged": "FINISHED", "failed": "FAILED"}.items():
        run = run_of(client, name)
        assert (run.info.status, run.data.tags["outcome"]) == (status, name)
    assert "failure" not in run_of(client, "finished").data.tags
    assert run_of(client, "failed").data.tags["failure"] == "no space"
    assert run_of(client, "diverged").data.tags["failure"] == "loss is nan at step 3"


def test_evaluated_steps_are_a_series_beside_what_the_trial_came_to(client: Any) -> None:
    """MLflow's columns show a series' last step, and step 2 was chosen of 3."""
    run = run_of(client, "finished")
    history = client.get_metric_history(run.info.run_id, "eval_by_step/model_utility")
    assert [(point.step, point.value) for point in history] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert (run.data.metrics["eval/model_utility"], run.data.tags["chosen_step"]) == (0.6, "2")
    assert "chosen_step" not in run_of(client, "rectified").data.tags
    (point,) = client.get_metric_history(run.info.run_id, "eval/model_utility")
    assert point.step == 0


def test_the_view_of_the_trials_shows_params_and_metrics_that_they_have(client: Any) -> None:
    """As MLflow's page reads it: a tag of the experiment that holds JSON in JSON, and names columns and axes."""
    view = json.loads(client.get_experiment_by_name("tiny").tags["mlflow.sharedViewState.trials"])
    state = json.loads(view["state"])
    run, known = run_of(client, "rectified"), parent_of(client).info.run_id
    columns = [column.partition(".")[::2] for column in state["selectedColumns"]]
    have = {"metrics": run.data.metrics, "params": run.data.params, "tags": run.data.tags}
    assert all(name.strip("`") in have[kind] for kind, name in columns)
    parallel, scatter, *lines = state["compareRunCharts"]
    assert parallel["selectedParams"] == ["rectifier.gamma", "tau"]
    assert set(parallel["selectedParams"]) <= set(run.data.params)
    assert parallel["selectedMetrics"] == ["eval/forget_quality", "eval/model_utility"]
    assert {scatter["xaxis"]["key"], scatter["yaxis"]["key"]} == set(parallel["selectedMetrics"])
    assert all(line["metricKey"] in run.data.metrics for line in lines)
    experiment = client.get_experiment_by_name("tiny").experiment_id
    found = client.search_runs([experiment], state["searchFilter"], order_by=[f"{state['orderByKey']} DESC"])
    assert len(found) == 4
    assert known not in {run.info.run_id for run in found}


def test_rows_are_a_dataset_of_the_run(client: Any) -> None:
    (given,) = run_of(client, "finished").inputs.dataset_inputs
    assert (given.dataset.name, given.dataset.digest) == ("tofu/forget05", "0")
    assert '"data": "data"' in given.dataset.source


def test_report_and_kept_weights_are_shown_as_long_as_they_are_there(store: Storage, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    copy = Storage(tmp_path / "copy")
    for name in ("finished", "rectified"):
        write_result(copy, TRIALS[name], "finished")
    folder = copy.trial(TRIALS["finished"].id()) / "weights"
    folder.mkdir()
    made = ("report/figures/tradeoff.svg", "report/index.html", "report/tables/main.csv")
    for name in made:
        path = copy.root / "reports" / name.replace("report", "tiny-0a1b2c3d", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<p>A report.</p>")
    tracking_tracker.sync(write_sweep(copy), copy)
    client = MlflowClient(tracking_uri=f"sqlite:///{copy.root / 'mlflow.db'}")
    assert run_of(client, "finished").data.tags["checkpoint"] == folder.as_uri()
    assert "checkpoint" not in run_of(client, "rectified").data.tags
    shown = [
        item.path
        for folder in ("report", "report/figures", "report/tables")
        for item in client.list_artifacts(parent_of(client).info.run_id, folder)
        if not item.is_dir
    ]
    assert sorted(shown) == list(made)
    folder.rmdir()
    tracking_tracker.sync(write_sweep(copy), copy)
    assert "checkpoint" not in run_of(client, "finished").data.tags


def test_result_file_lies_with_the_run(client: Any, store: Storage) -> None:
    run = run_of(client, "finished")
    assert [item.path for item in client.list_artifacts(run.info.run_id)] == ["result.json"]
    assert Path(run.info.artifact_uri).is_relative_to(store.root)


def test_tracking_writes_one_database(client: Any, store: Storage) -> None:
    assert [path.name for path in store.root.rglob("*.db")] == ["mlflow.db"]
    assert not (store.root / "mlruns").exists()


def test_command_syncs_what_the_storage_holds(client: Any, store: Storage, run_module: RunModule) -> None:
    before = {run.info.run_id for run in all_runs(client)}
    done = run_module("platform.tracking", "sync", "tiny", "--storage", store.root)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"4 trials in sqlite:///{store.root / 'mlflow.db'}\n"
    assert {run.info.run_id for run in all_runs(client)} == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sync", "tinny"], "no sweep 'tinny' in "),
        (["sink", "tiny"], "unknown action 'sink'; known: sync"),
    ],
)
def test_command_refuses_what_it_does_not_know(
    store: Storage, run_module: RunModule, arguments: list[str], said: str
) -> None:
    done = run_module("platform.tracking", *arguments, "--storage", store.root)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {said}")
    assert done.stderr.count("\n") == 1


def test_tracking_uri_of_the_environment_is_respected(
    client: Any, store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tracking_tracker.tracking_uri(Storage(tmp_path)) != f"sqlite:///{store.root / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store.root / 'mlflow.db'}")
    elsewhere = Storage(tmp_path)
    write_result(elsewhere, TRIALS["missing"], "finished")
    sweep = {**write_sweep(elsewhere, digest="ffffffff"), "name": "elsewhere", "trials": [TRIALS["missing"].id()]}
    assert tracking_tracker.sync(sweep, elsewhere) == 1
    assert client.get_experiment_by_name("elsewhere") is not None
    assert not (tmp_path / "mlflow.db").exists()
