"""MLflow as a view of the storage: what its runs show of one sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from platform.state.trial_outcomes import count_outcomes
from platform.tracking import __main__ as command
from platform.tracking import tracker, views
from tests.support.tracked_store import TRIALS, all_runs, parent_of, run_of, series, write_result, write_sweep
from trainables.config.settings import Benchmark, Rectifier
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CAME_BACK

DONE = ("finished", "rectified", "diverged", "failed")


def counts(**given: int) -> dict[str, int]:
    names = ("finished", "collapsed", "stopped", "diverged", "failed", "out_of_memory", "lost", "missing")
    return {"trials/total": 5, **{f"trials/{name}": given.get(name, 0) for name in names}}


def test_one_parent_and_one_child_for_each_result(client: Any) -> None:
    parent = parent_of(client)
    assert parent.info.run_name == "tiny-0a1b2c3d"
    assert parent.info.status == "KILLED"  # one is missing
    told = {"strategy": "paper", "axes": '{"training.lr": [0.0004]}', "command": "python -m platform.sweep tiny"}
    assert told.items() <= parent.data.tags.items()
    assert parent.data.metrics == counts(finished=2, diverged=1, failed=1, missing=1)
    children = [run for run in all_runs(client) if run.info.run_id != parent.info.run_id]
    assert sorted((run.data.tags["trial_id"], run.info.run_name) for run in children) == sorted(
        (TRIALS[name].id(), TRIALS[name].label()) for name in DONE
    )
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}


def test_parent_tells_what_is_true_now(copied: tuple[Storage, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """While the sweep runs; where an Optuna study is at its budget, which leaves points that nobody means to run; and
    when the missing trial and the one that failed ran, by a clock that had been set back."""
    store, client = copied
    again = tracker.open_tracker(write_sweep(store).model_copy(update={"trial_budget": 4}), store)
    assert parent_of(client).info.status == "RUNNING"
    again.finish(count_outcomes(again.sweep, store))
    assert parent_of(client).info.status == "FINISHED"
    monkeypatch.setattr(tracker.time, "time", lambda: 1.7e9)
    for name in ("failed", "missing"):
        write_result(store, TRIALS[name], "finished", started="2026-11-21T08:00:00+00:00")
    tracker.sync(write_sweep(store), store)
    parent = parent_of(client)
    assert (parent.info.status, parent.data.metrics) == ("FINISHED", counts(finished=4, diverged=1))


def test_params_are_the_whole_configuration(client: Any) -> None:
    params = run_of(client, "rectified").data.params
    expected = {"method": "npo", "rectifier.gamma": "0.8", "rectifier.tau": "none", "tau": "none", "seed": "0"}
    expected |= {"training.lr": "0.0004", "benchmark.fingerprint": "files:0"}
    expected |= {"objective.beta": "none", "constants.beta": "0.1", "constants.forget_coefficient": "1.0"}
    assert expected.items() <= params.items()
    assert "constants.alpha" not in params, "RMU's"
    assert "tau" not in run_of(client, "finished").data.params  # which has no rectifier
    assert views.chart_params(Rectifier(name="clip", tau=0.01)) == {"tau": "≤ 0.01"}


def test_metrics_and_series_are_those_of_the_storage(client: Any) -> None:
    run, plain = run_of(client, "rectified"), run_of(client, "finished")
    shown = {"eval/forget_quality": -2.5, "eval/model_utility": 0.6, "time/total": 9.5}
    assert shown.items() <= run.data.metrics.items()
    assert not {"eval/forget_quality_ks", "train/coefficient"} & run.data.metrics.keys()
    assert "train/retain_loss" not in plain.data.metrics
    values = {"loss": [-0.5, -1.0, -1.5], "retain_loss": [2.0, 3.0, 4.0], "skipped": [0, 1, 0], "attempts": [1, 10, 1]}
    for name, expected in {**values, "rectified": [1, 1, 1]}.items():
        assert series(client, run, f"train/{name}") == list(enumerate(expected, start=1)), name
    assert series(client, plain, "train/rectified") == [(1, 0), (2, 0), (3, 0)]


def test_outcome_is_told(client: Any) -> None:
    """MLflow's columns show a series' last step, and step 2 was chosen of 3: evaluations by step are apart."""
    failures = {"finished": None, "diverged": "loss is nan at step 3", "failed": "no space"}
    for name, status in {"finished": "FINISHED", "diverged": "FINISHED", "failed": "FAILED"}.items():
        run = run_of(client, name)
        assert (run.info.status, run.data.tags["outcome"]) == (status, name)
        assert run.data.tags.get("failure") == failures[name]
    run = run_of(client, "finished")
    assert series(client, run, "eval_by_step/model_utility") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert series(client, run, "eval/model_utility") == [(0, 0.6)]
    assert run.data.tags["chosen_step"] == "2"


def test_the_view_of_the_trials_shows_params_and_metrics_that_they_have(client: Any) -> None:
    """As MLflow's page reads it: a tag of the experiment that holds JSON in JSON, and names columns and axes."""
    experiment = client.get_experiment_by_name("tiny")
    state = json.loads(json.loads(experiment.tags["mlflow.sharedViewState.tiny-0a1b2c3d"])["state"])
    run, parent = run_of(client, "rectified"), parent_of(client).info.run_id
    columns = [column.partition(".")[::2] for column in state["selectedColumns"]]
    have = {"metrics": run.data.metrics, "params": run.data.params, "tags": run.data.tags}
    assert all(name.strip("`") in have[kind] for kind, name in columns)
    parallel, scatter, *lines = state["compareRunCharts"]
    assert parallel["selectedParams"] == ["rectifier.gamma", "tau"]
    assert set(parallel["selectedParams"]) <= set(run.data.params)
    assert parallel["selectedMetrics"] == ["eval/forget_quality", "eval/model_utility"]
    assert {scatter["xaxis"]["key"], scatter["yaxis"]["key"]} == set(parallel["selectedMetrics"])
    assert all(line["metricKey"] in run.data.metrics for line in lines)
    order = [f"{state['orderByKey']} DESC"]
    found = client.search_runs([experiment.experiment_id], state["searchFilter"], order_by=order)
    assert len(found) == 4
    assert parent not in {run.info.run_id for run in found}


def test_the_view_of_a_sweep_whose_file_names_no_benchmark_is_that_of_its_trials(copied: tuple[Storage, Any]) -> None:
    store, client = copied
    benchmark = Benchmark(name="muse", split="news", data="data", fingerprint="files:0")
    trial = TRIALS["finished"].model_copy(update={"benchmark": benchmark})
    write_result(store, trial, "finished")
    again = tracker.open_tracker(write_sweep(store).model_copy(update={"trials": (trial.id(),)}), store)
    again.finish(count_outcomes(again.sweep, store))
    view = client.get_experiment(again.experiment).tags["mlflow.sharedViewState.tiny-0a1b2c3d"]
    assert "metrics.`eval/verbmem_f`" in json.loads(json.loads(view)["state"])["selectedColumns"]


def test_the_result_lies_with_the_run(client: Any, tracked: Storage) -> None:
    run = run_of(client, "finished")
    assert [item.path for item in client.list_artifacts(run.info.run_id)] == ["result.json"]
    assert Path(run.info.artifact_uri).is_relative_to(tracked.root)
    assert not (tracked.root / "mlruns").exists()


def attack(store: Storage, *rows: tuple[str, int, float | None, float]) -> None:
    """Write what attacks brought back of the finished trial: attack, step, share and what is measured after."""
    shares = [dict(zip(("attack", "step", "share", "after"), row, strict=True)) for row in rows]
    trial = TRIALS["finished"].id()
    document = {"started": (store.result(trial) or {})["started"], "attacks": {}, "shares": shares}
    atomic_files.write_json(store.stress(trial) / CAME_BACK, document)


def test_report_and_kept_weights_are_shown_as_long_as_they_are_there(copied: tuple[Storage, Any]) -> None:
    store, client = copied
    folder = store.trial(TRIALS["finished"].id()) / "weights"
    folder.mkdir()
    files = ("report/figures/tradeoff.svg", "report/index.html", "report/tables/main.csv")
    for name in files:
        path = store.root / "reports" / name.replace("report", "tiny-0a1b2c3d", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<p>A report.</p>")
    tracker.sync(write_sweep(store), store)
    assert run_of(client, "finished").data.tags["checkpoint"] == folder.as_uri()
    assert "checkpoint" not in run_of(client, "rectified").data.tags
    assert not [name for name in run_of(client, "finished").data.metrics if name.startswith("stress/")]
    attack(store, ("nf4", 0, 0.25, 0.4), ("relearn", 4, None, 0.3))
    for _ in range(2):
        tracker.sync(write_sweep(store), store)
    found = {name: value for name, value in run_of(client, "finished").data.metrics.items() if "stress" in name}
    assert found == {"stress/nf4": 0.25, "stress/nf4_after": 0.4, "stress/relearn_after": 0.3}
    attack(store, ("nf4", 0, 0.5, 0.4))
    tracker.sync(write_sweep(store), store)
    run_id = run_of(client, "finished").info.run_id
    assert [point.value for point in client.get_metric_history(run_id, "stress/nf4")] == [0.25, 0.5]
    parent = parent_of(client).info.run_id
    folders = ("report", "report/figures", "report/tables")
    shown = [item.path for folder in folders for item in client.list_artifacts(parent, folder) if not item.is_dir]
    assert sorted(shown) == list(files)
    folder.rmdir()
    tracker.sync(write_sweep(store), store)
    assert "checkpoint" not in run_of(client, "finished").data.tags


def invoke(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and error of `python -m platform.tracking`."""
    app = typer.Typer()
    app.command()(command.main)
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stdout, done.stderr


def test_command_syncs_what_the_storage_holds(copied: tuple[Storage, Any]) -> None:
    store, client = copied
    before = {run.info.run_id for run in all_runs(client)}
    said = f"4 trials in sqlite:///{store.root / 'mlflow.db'}\n"
    assert invoke("sync", "tiny", "--storage", store.root) == (0, said, "")
    assert {run.info.run_id for run in all_runs(client)} == before
    for action, name, message in (
        ("sync", "tinny", "no sweep 'tinny' in "),
        ("sink", "tiny", "unknown action 'sink'; k"),
    ):
        status, _, err = invoke(action, name, "--storage", store.root)
        assert (status, err.count("\n")) == (2, 1)
        assert err.startswith(f"error: {message}")
