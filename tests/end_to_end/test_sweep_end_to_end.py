"""One real sweep on the tiny models: started, started again, resumed; warm, cold and without Ray the same."""

from __future__ import annotations

import html
import json
import re
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
TRIALS = 2  # NPO without and with GRU


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

    def result(self, rectifier: str) -> dict[str, Any]:
        return next(found for found in self.results().values() if found["config"]["rectifier"]["name"] == rectifier)


@pytest.fixture(scope="module")
def started(trial_inputs: Any, run_module: RunModule, tmp_path_factory: pytest.TempPathFactory) -> Started:
    """The first start; of the general rows there are few."""
    place = tmp_path_factory.mktemp("sweep")
    settings = (*small_sweep.write_inputs(trial_inputs, place), *SETTINGS)
    typed = ["tofu_tiny", *type_settings(settings), "--only", "method=npo"]
    done = run_module("platform.sweep", *typed, "--storage", place / "runs")
    assert done.returncode == 0, done.stdout + done.stderr
    return Started(typed, Storage(place / "runs"), done)


def test_first_start_tells_what_happens_and_where_everything_is(started: Started) -> None:
    """Each study has one trial here, which is the chosen one."""
    sweep, lines = started.sweep(), started.done.stdout.splitlines()
    name = f"tofu_tiny-{sweep['hash']}"
    assert lines[0] == f"sweep {name}: {TRIALS} trials, 0 done, {TRIALS} to run"
    assert lines[1].startswith(f"storage {started.store.root}, ")
    assert "evaluating the retain model on forget25 (once)" in lines
    for label in ("npo-forget25-s0", "gru-npo-forget25-g0.8-t1-s0"):
        assert sum(re.match(rf"{label} \([0-9a-f]{{12}}\): FQ -", line) is not None for line in lines) == 1
    assert f"done {TRIALS} | running 0 | failed 0 | left 0" in started.done.stdout
    assert [line.split(":")[0] for line in lines[-5:]] == ["report", "MLflow", "  table", "  chart", "next"]
    assert lines[-5] == f"report: {started.store.root}/reports/{name}/index.html"
    assert lines[-1].startswith("next:   python -m platform.sweep tofu_tiny --set benchmark.data=")
    assert f" --resume --storage {started.store.root} --seeds 0,1,2   " in lines[-1]
    assert started.done.stderr == ""
    for row in ("retain", "original", "npo none npo-forget25-s0 1", "npo gru gru-npo-forget25-g0.8-t1-s0 1"):
        assert any(" ".join(line.split()).startswith(f"forget25 {row} ") for line in lines), row
    assert sum(line.startswith("stress: ") and ": attacked; " in line for line in lines) == TRIALS
    attacked = {path.parent.name for path in started.store.root.glob("stress/*/came_back.json")}
    assert attacked == set(sweep["trials"])
    folder = started.store.root / "reports" / name
    for file in ("tables/main.csv", "tables/main.md", "tables/main.tex", "figures/tradeoff.pdf"):
        assert (folder / file).is_file()
    assert "Does it last" in (folder / "index.html").read_text()


KINDS = ("sweep ", "storage ", "evaluating ", "  split ", "making the report", "report: ", "MLflow: ")


def test_the_recording_in_the_readme_has_the_lines_that_a_sweep_prints(started: Started, root: Path) -> None:
    """But for numbers, names and paths; `make pictures` records it again."""
    texts = re.findall(r"<text [^>]*>(.*?)</text>", (root / "docs/quickstart.svg").read_text())
    recorded = [html.unescape(text).replace("\xa0", " ") for text in texts]

    def shape(lines: list[str], kind: str) -> str:
        words = " ".join(next(line for line in lines if line.startswith(kind)).split())
        return re.sub(r"\S*[\d/]\S*|runs,?", "#", words.replace(" (with uncommitted changes)", ""))

    printed = started.done.stdout.splitlines()
    assert [shape(recorded, kind) for kind in KINDS] == [shape(printed, kind) for kind in KINDS]


def test_the_storage_holds_one_result_a_trial_and_the_references(started: Started) -> None:
    sweep, results, root = started.sweep(), started.results(), started.store.root
    assert len(sweep["trials"]) == TRIALS
    assert results.keys() == set(sweep["trials"]) == {path.name for path in (root / "trials").iterdir()}
    for name, result in results.items():
        assert Trial.model_validate(result["config"]).id() == name
        assert (result["status"], result["training"]["steps"]) == ("finished", 4)
        assert result["metrics"]["forget_quality"] <= 0
        expected = {"ranks": 1, "zero_stage": None, "device": "cpu", "threads": 1, "micro_batch": 8}
        assert result["topology"] == expected | {"evaluation_tokens": 4096}
    assert len({json.dumps(result["metrics"], sort_keys=True) for result in results.values()}) > 1
    quality = {}
    for ref in sweep["references"]:
        result = read_json(root / "shared" / "evaluations" / ref["evaluation"] / "result.json") or {}
        quality[ref["role"]] = result["metrics"]["forget_quality"]
    assert quality["retain"] is None
    assert quality["original"] < 0
    known = {"trials", "sweeps", "shared", "reports", "stress", "mlflow.db", "mlartifacts"}
    assert {path.name for path in root.iterdir()} - {"ray"} == known
    assert not any((root / "ray").glob("*"))
    assert not list(root.rglob("*.partial"))


def test_mlflow_has_one_parent_and_every_trial(started: Started) -> None:
    with sqlite3.connect(started.store.root / "mlflow.db") as db:
        trials = [row[0] for row in db.execute("select value from tags where key = 'trial_id'")]
        (parent,) = {row[0] for row in db.execute("select value from tags where key = 'mlflow.parentRunId'")}
        runs = dict(db.execute("select run_uuid, status from runs").fetchall())
    assert sorted(trials) == sorted(started.sweep()["trials"])
    assert (len(runs), set(runs.values())) == (TRIALS + 1, {"FINISHED"})
    assert (started.store.root / "mlartifacts" / parent / "artifacts" / "report" / "index.html").is_file()


def test_warm_actor_and_a_process_without_ray_give_the_same_bit_for_bit(started: Started, tmp_path: Path) -> None:
    """Two trials, one after another, in one actor: nothing of the first is left in the second."""
    from trainables.trial.runner import TrialRun
    from trainables.workers.ray_processes import TrialActor

    cold, warm = Storage(tmp_path / "cold"), Storage(tmp_path / "warm")
    other, trial = (Trial.model_validate(started.result(name)["config"]) for name in ("none", "gru"))
    list(TrialRun(trial, cold).run_events())
    first, second = ({"trial": one.model_dump_json(), "storage": str(warm.root)} for one in (other, trial))
    actor = TrialActor(first)

    def finish() -> dict[str, Any]:
        while not (told := actor.step())["done"]:
            pass
        return told

    before = finish()
    assert actor.reset_config(second)
    after = finish()
    assert [told["id"] for told in (before, after)] == [other.id(), trial.id()]
    result = warm.result(trial.id()) or {}
    assert (after["phase"], after["status"], after["halves"]) == ("done", "finished", result["halves"])
    assert after["forget_quality"] == result["metrics"]["forget_quality"]
    same(warm, cold, trial, kept=False)
    same(started.store, cold, trial, kept=False)
    same(warm, started.store, other, kept=False)
