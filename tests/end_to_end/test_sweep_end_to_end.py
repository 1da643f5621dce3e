"""One real sweep on the tiny models: started, started again, resumed; warm, cold and without Ray the same."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import small_sweep
from tests.support.environment import RunModule, type_settings
from tests.support.interrupted import same
from trainables.config.trial import Trial
from trainables.storage.atomic_files import read_json
from trainables.storage.folder_storage import Storage

SETTINGS = (
    "benchmark.split=forget25",
    "training.max_steps=4",
    "training.batch_size=8",
    "training.max_length=192",
    "training.lr=2e-3",
    "rectifier.gamma=0.8",
    "rectifier.tau=1",
    "stress.attacks=int8",
)
TRIALS = 4  # GA and NPO, each without and with GRU


@dataclass(frozen=True)
class Started:
    """A sweep after its first start."""

    arguments: list[str]
    store: Storage
    done: subprocess.CompletedProcess[str]

    def sweep(self) -> dict[str, Any]:
        (path,) = (self.store.root / "sweeps").glob("*.json")
        return json.loads(path.read_text())

    def results(self) -> dict[str, dict[str, Any]]:
        return {name: result for name in self.sweep()["trials"] if (result := self.store.result(name))}

    def result(self, method: str, tau: float | None) -> dict[str, Any]:
        """GRU's result with this method and tau."""
        fitting = [
            result
            for result in self.results().values()
            if result["config"]["method"] == method
            and {"name": "gru", "gamma": 0.8, "tau": tau}.items() <= result["config"]["rectifier"].items()
        ]
        return fitting[0]


def stamps(store: Storage) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in store.root.glob("trials/*/result.json")}


@pytest.fixture(scope="module")
def started(trial_inputs: Any, run_module: RunModule, tmp_path_factory: pytest.TempPathFactory) -> Started:
    """The first start; of the general rows there are few."""
    place = tmp_path_factory.mktemp("sweep")
    small_sweep.write_inputs(trial_inputs, place)
    settings = (f"benchmark.data={place / 'data'}", f"models={place / 'models'}", *SETTINGS)
    typed = ["tofu_tiny", *type_settings(settings), "--only", "method=ga,npo"]
    done = run_module("platform.sweep", *typed, "--storage", place / "runs", timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return Started(typed, Storage(place / "runs"), done)


@pytest.fixture(scope="module")
def alone(started: Started, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Storage]:
    """One of the sweep's trials without Ray, in this process: it gives what a fresh one gives (test_run.py)."""
    from trainables.trial.runner import TrialRun

    store = Storage(tmp_path_factory.mktemp("alone"))
    trial = Trial.model_validate(started.result("npo", 1.0)["config"])
    list(TrialRun(trial, store).events())
    return trial, store


def test_first_start_tells_what_happens_and_where_everything_is(started: Started) -> None:
    sweep, lines = started.sweep(), started.done.stdout.splitlines()
    name = f"tofu_tiny-{sweep['hash']}"
    assert lines[0] == f"sweep {name}: {TRIALS} trials, 0 done, {TRIALS} to run"
    assert lines[1].startswith(f"storage {started.store.root}, ")
    assert "evaluating the retain model on forget25 (once)" in lines
    assert any(re.fullmatch(r"the retain model is evaluated on forget25 \(after \d+ s\)", line) for line in lines)
    for label in ("ga-forget25-s0", "gru-npo-forget25-g0.8-t1-s0"):
        assert sum(line.startswith(f"{label}: FQ -") for line in lines) == 1
    assert f"done {TRIALS} | running 0 | failed 0 | left 0" in started.done.stdout
    assert [line.split(":")[0] for line in lines[-4:]] == ["report", "MLflow", "        http", "next"]
    assert lines[-4] == f"report: {started.store.root}/reports/{name}/index.html"
    assert lines[-2].endswith("/#/experiments/1")
    assert lines[-1].startswith("next:   python -m platform.sweep tofu_tiny --set benchmark.data=")
    assert f" --resume --storage {started.store.root} --seeds 0,1,2   " in lines[-1]
    assert sweep["command"].startswith("python -m platform.sweep tofu_tiny --set benchmark.data=")
    assert (sweep["sweep"]["name"], sweep["sweep"]["training"]["max_steps"]) == ("tofu_tiny", 4)
    assert started.done.stderr == ""


def test_the_chosen_settings_are_printed_and_the_report_written(started: Started) -> None:
    text = started.done.stdout
    assert "no report" not in text
    columns = ["split", "method", "rectifier", "setting", "seeds", "FQ", "MU"]
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert " ".join(columns) in rows
    for row in ("retain", "original", "ga none ga-forget25-s0 1", "npo gru gru-npo-forget25-g0.8-t1-s0 1"):
        assert any(line.startswith(f"forget25 {row} ") for line in rows), row
    (folder,) = (started.store.root / "reports").iterdir()
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"index.html", "tables/main.csv", "tables/main.md", "tables/main.tex", "figures/tradeoff.pdf"} <= files


def test_chosen_trials_are_attacked_at_the_end(started: Started) -> None:
    """Each study has one trial here. The report says what came back."""
    told = [line for line in started.done.stdout.splitlines() if line.startswith("stress: ")]
    assert len(told) == TRIALS, started.done.stdout
    assert any(line.startswith("stress: gru-npo-forget25-g0.8-t1-s0: attacked; ") for line in told)
    attacked = {path.parent.name for path in started.store.root.glob("stress/*/came_back.json")}
    assert attacked == set(started.sweep()["trials"])
    (page,) = started.store.root.glob("reports/*/index.html")
    assert "Does it last" in page.read_text()


def test_every_planned_trial_has_one_result(started: Started) -> None:
    planned, results = started.sweep()["trials"], started.results()
    assert len(planned) == len(set(planned)) == TRIALS
    assert results.keys() == set(planned) == {path.name for path in (started.store.root / "trials").iterdir()}
    for name, result in results.items():
        assert Trial.model_validate(result["config"]).id() == name
        assert (result["status"], result["training"]["steps"]) == ("finished", 4)
        assert result["metrics"]["forget_quality"] <= 0
        assert result["topology"] == {"ranks": 1, "zero_stage": 1, "device": "cpu", "threads": 1, "micro_batch": 8}
    metrics = [json.dumps(result["metrics"], sort_keys=True) for result in results.values()]
    assert len(set(metrics)) > 1


def test_references_are_evaluated_once_and_named(started: Started) -> None:
    references = {ref["role"]: ref for ref in started.sweep()["references"]}
    assert references.keys() == {"original", "retain"}
    folder = started.store.root / "shared" / "evaluations"
    assert {path.name for path in folder.iterdir()} == {ref["evaluation"] for ref in references.values()}
    found = {
        role: json.loads((folder / ref["evaluation"] / "result.json").read_text()) for role, ref in references.items()
    }
    assert found["retain"]["metrics"]["forget_quality"] is None
    assert found["original"]["metrics"]["forget_quality"] < 0


def test_nothing_but_results_is_left_in_the_storage(started: Started) -> None:
    names = {path.name for path in started.store.root.iterdir()}
    assert names - {"ray"} == {"trials", "sweeps", "shared", "reports", "stress", "mlflow.db", "mlartifacts"}
    assert not any((started.store.root / "ray").glob("*"))
    assert not list(started.store.root.rglob("*.partial"))


def test_mlflow_has_one_parent_and_every_trial(started: Started) -> None:
    with sqlite3.connect(started.store.root / "mlflow.db") as db:
        trials = [row[0] for row in db.execute("select value from tags where key = 'trial_id'")]
        parents = {row[0] for row in db.execute("select value from tags where key = 'mlflow.parentRunId'")}
        runs = dict(db.execute("select run_uuid, status from runs").fetchall())
    assert sorted(trials) == sorted(started.sweep()["trials"])
    assert len(parents) == 1
    assert len(runs) == TRIALS + 1
    assert parents < runs.keys()
    assert set(runs.values()) == {"FINISHED"}
    shown = started.store.root / "mlartifacts" / parents.pop() / "artifacts" / "report"
    assert (shown / "index.html").is_file()


def test_trial_without_ray_is_the_same_bit_for_bit(started: Started, alone: tuple[Trial, Storage]) -> None:
    trial, store = alone
    same(started.store, store, trial, kept=False)


def test_warm_actor_gives_what_a_fresh_process_gives(
    started: Started, alone: tuple[Trial, Storage], tmp_path: Path
) -> None:
    """Two trials, one after another, in one actor: nothing of the first is left in the second."""
    from trainables.workers.ray_processes import TrialActor

    trial, cold = alone
    store = Storage(tmp_path)
    other = Trial.model_validate(started.result("ga", 1.0)["config"])
    first, second = ({"trial": each.model_dump_json(), "storage": str(tmp_path)} for each in (other, trial))
    actor = TrialActor(first)

    def finish() -> dict[str, Any]:
        while not (told := actor.step())["done"]:
            pass
        return told

    before = finish()
    assert actor.reset_config(second)
    after = finish()
    assert [told["id"] for told in (before, after)] == [other.id(), trial.id()]
    result = store.result(trial.id())
    assert result is not None
    assert after == {
        "id": trial.id(),
        "done": True,
        "phase": "done",
        "status": "finished",
        "forget_quality": result["metrics"]["forget_quality"],
        "model_utility": result["metrics"]["model_utility"],
        "halves": result["halves"],
        "history": [],
    }
    same(store, cold, trial, kept=False)
    same(store, started.store, other, kept=False)


def test_second_start_has_nothing_left_to_do(started: Started, join: RunModule) -> None:
    before = stamps(started.store)
    done = join(*started.arguments, "--storage", started.store.root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{TRIALS} trials, {TRIALS} done" in done.stdout
    assert "evaluating" not in done.stdout
    assert "running" not in done.stdout
    assert "gru-npo-forget25-g0.8-t1-s0" in done.stdout, "the table of chosen settings"
    assert stamps(started.store) == before
    assert len(started.sweep()["trials"]) == TRIALS
    with sqlite3.connect(started.store.root / "mlflow.db") as db:
        assert db.execute("select count(*) from runs").fetchone() == (TRIALS + 1,)


def test_missing_result_asks_for_resume(started: Started, run_module: RunModule, tmp_path: Path) -> None:
    """In a copy of the storage, which also shows that a moved one is found complete. Resumed: tests/faults."""
    shutil.copytree(started.store.root, tmp_path / "copy")
    store = Storage(tmp_path / "copy")
    shutil.rmtree(store.trial(started.result("npo", 1.0)["id"]))
    before = stamps(store)
    refused = run_module("platform.sweep", *started.arguments, "--storage", store.root)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: ")
    assert refused.stderr.count("\n") == 1
    for words in (f"1 of its {TRIALS} trials", "--resume", "--new"):
        assert words in refused.stderr
    assert stamps(store) == before


def test_trial_that_fits_on_no_machine_is_refused(started: Started, join: RunModule, tmp_path: Path) -> None:
    """Tune would wait for a bigger one without end."""
    done = join(*started.arguments, "--set", "resources.cpus=64", "--storage", tmp_path / "runs", timeout=60)
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: resources: a trial asks for 1 times 64 CPUs, more than the cluster's nodes hold (1 node of 2 CPUs)\n"
    )


@pytest.mark.slow
def test_one_direction_serves_every_strength(started: Started, join: RunModule) -> None:
    """TRU and TV over two strengths each: two makings in the log and in the store."""
    settings = [*started.arguments[:-1], "method=tv,tru"]
    for setting in ("task_vector.batches=2", "task_vector.stg=1,4", "task_vector.strength=2,9"):
        settings += ["--set", setting]
    store = Storage(started.store.root.parent / "vectors")
    shutil.copytree(started.store.root / "shared", store.root / "shared")
    done = join(*settings, "--storage", store.root, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(" direction")[0] for line in done.stdout.splitlines() if "direction for" in line] == [
        "making TV's",
        "making TRU's",
    ]
    folders = {folder.name for folder in (store.root / "shared" / "directions").iterdir()}
    results = [read_json(path) or {} for path in store.root.glob("trials/*/result.json")]
    assert len(results) == 4
    assert len(folders) == 2
    assert {result["direction"] for result in results} == folders
    assert "TRU" in done.stdout
