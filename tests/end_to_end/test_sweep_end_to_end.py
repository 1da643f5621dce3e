"""Real sweeps on the tiny models: started, stopped, their workers killed; in one actor and without Ray the same."""

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.checks import litter, mirrored
from tests.faults.sweep import PATIENCE, saved
from tests.support import small_sweep
from tests.support.environment import RunModule, TrialInputs, clean_environment, type_settings
from tests.support.interrupted import same
from trainables.config.trial import Trial
from trainables.storage.atomic_files import read_json
from trainables.storage.file_names import PROGRESS
from trainables.storage.folder_storage import Storage
from trainables.trial.runner import TrialRun

SETTINGS = (
    *"benchmark.split=forget25 training.max_steps=4 training.batch_size=8 training.max_length=192".split(),
    *"training.lr=2e-3 rectifier.gamma=0.8 rectifier.tau=1 stress.attacks=int8 resources.checkpoint_every=1".split(),
)
TRIALS = 2  # NPO without and with GRU
ONE = ("--max-concurrent", "1")


def type_words(inputs: TrialInputs, place: Path, methods: str) -> list[str]:
    """Return the words of a start of tofu_tiny with a models folder and rows of its own; of the general rows few."""
    settings = (*small_sweep.write_inputs(inputs, place), *SETTINGS)
    return ["tofu_tiny", *type_settings(settings), "--only", f"method={methods}"]


@dataclass(frozen=True)
class Started:
    """A sweep after its first start. `killed`: the trial whose worker was killed, and the step of its checkpoint."""

    store: Storage
    out: str
    err: str
    killed: tuple[str, int]

    def sweep(self) -> dict[str, Any]:
        (path,) = (self.store.root / "sweeps").glob("*.json")
        return json.loads(path.read_text())

    def results(self) -> dict[str, dict[str, Any]]:
        return {name: result for name in self.sweep()["trials"] if (result := self.store.result(name))}


@pytest.fixture(scope="module")
def started(trial_inputs: Any, joined: dict[str, str], root: Path, tmp_path_factory: pytest.TempPathFactory) -> Started:
    """Both trials run one after another; the worker of the first is killed at a checkpoint, and another goes on.

    The whole fault matrix, with the driver's death: tests/faults/test_faults.py.
    """
    place = tmp_path_factory.mktemp("sweep")
    store = Storage(place / "runs")
    typed = [*type_words(trial_inputs, place, "npo"), "--storage", place / "runs", *ONE]
    command = [sys.executable, "-m", "platform.sweep", *typed, "--address", joined["RAY_ADDRESS"]]
    environment = clean_environment(COLUMNS="160", NO_COLOR="1") | joined
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as driver:
        try:
            deadline = time.monotonic() + PATIENCE
            while not (found := saved(store)) and driver.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            for killed in found:
                psutil.Process((read_json(store.trial(killed) / PROGRESS) or {})["pid"]).kill()
            out, err = driver.communicate(timeout=PATIENCE if found else 1)
        finally:
            driver.kill()
    assert driver.returncode == 0, out + err
    ((killed, (_, step)),) = found.items()
    return Started(store, out, err, (killed, step))


def test_first_start_tells_what_happens_and_where_everything_is(started: Started) -> None:
    """Each study has one trial here, which is the chosen one."""
    sweep, lines = started.sweep(), started.out.splitlines()
    name = f"tofu_tiny-{sweep['hash']}"
    assert lines[0] == f"sweep {name}: {TRIALS} trials, 0 done, {TRIALS} to run"
    assert lines[1].startswith(f"storage {started.store.root}, ")
    assert "evaluating the retain model on forget25 (once)" in lines
    for label in ("npo-forget25-s0", "gru-npo-forget25-g0.8-t1-s0"):
        assert sum(re.match(rf"{label} \([0-9a-f]{{12}}\): FQ -", line) is not None for line in lines) == 1
    assert f"done {TRIALS} | running 0 | failed 0 | left 0" in started.out
    assert [line.split(":")[0] for line in lines[-5:]] == ["report", "MLflow", "  table", "  chart", "next"]
    assert lines[-5] == f"report: {started.store.root}/reports/{name}/index.html"
    assert lines[-1].startswith("next:   python -m platform.sweep tofu_tiny --set benchmark.data=")
    assert f" --resume --storage {started.store.root} --seeds 0,1,2   " in lines[-1]
    assert started.err == ""
    assert [row[2:6] for row in lines if row.startswith("| ")][-5:] == ["Meth", "Orig", "Retr", "NPO ", "w/ G"]
    assert sum(line.startswith("stress: ") and ": attacked; " in line for line in lines) == TRIALS
    attacked = {path.parent.name for path in started.store.root.glob("stress/*/came_back.json")}
    assert attacked == set(sweep["trials"])
    folder = started.store.root / "reports" / name
    for file in ("tables/main.csv", "tables/main.md", "tables/main.tex", "figures/tradeoff.pdf"):
        assert (folder / file).is_file()
    assert "Does it last" in (folder / "index.html").read_text()


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


def test_a_killed_trial_goes_on_and_is_that_of_a_process_without_ray_bit_for_bit(
    started: Started, tmp_path: Path
) -> None:
    """Also the second trial in the actor: nothing of the first is left in it."""
    killed, step = started.killed
    assert started.results()[killed]["training"]["resumed_at"] >= step
    assert started.out.count(": its process or node went away; it goes on from its last checkpoint") == 1
    assert (list(mirrored(started.store)), litter(started.store)) == ([], [])
    cold = Storage(tmp_path)
    for result in reversed(started.results().values()):  # GRU's first
        trial = Trial.model_validate(result["config"])
        list(TrialRun(trial, cold).run_and_yield_events())
        same(started.store, cold, trial, kept=False)


@pytest.mark.slow
def test_mlflow_shows_no_run_that_nobody_runs_after_an_interrupt(
    trial_inputs: TrialInputs, root: Path, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    typed = [*type_words(trial_inputs, tmp_path, "ga,npo"), "--storage", tmp_path / "runs", *ONE]
    command = [sys.executable, "-m", "platform.sweep", *typed]
    with subprocess.Popen(command, cwd=root, env=clean_environment(), stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert any(line.startswith("ga-forget25-s0 (") for line in driver.stdout)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(150) == 130
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}")
    experiment: Any = client.get_experiment_by_name("tofu_tiny")
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.status for run in runs if run.data.tags.get("role") == "parent"} == {"KILLED"}
    assert "FINISHED" in {run.info.status for run in runs}
    assert "RUNNING" not in {run.info.status for run in runs}


@pytest.mark.slow
def test_spent_gpu_hours_stop_a_sweep_that_goes_on_with_more(
    trial_inputs: TrialInputs, run_module: RunModule, tmp_path: Path
) -> None:
    """The preparation spends a small budget alone; with a little more one trial begins, and ends; with it no other."""
    runs, typed = tmp_path / "runs", type_words(trial_inputs, tmp_path, "ga,npo")

    def spend(hours: str, *more: str, status: int = 3) -> str:
        done = run_module("platform.sweep", *typed, "--storage", runs, "--gpu-hours", hours, *more, OMP_NUM_THREADS="1")
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    said = spend("0.00001", *ONE)
    assert "stopped: --gpu-hours 1e-05: " in said
    assert "4 trials left; go on with a larger --gpu-hours and --resume" in said
    (ledger,) = (runs / "sweeps").glob("*.spent")
    little = f"{(json.loads(ledger.read_text())['gpu_seconds'] + 1.0) / 3600:.9f}"
    for _ in range(2):
        assert "3 trials left" in spend(little, *ONE, "--resume")
        assert len(list(runs.glob("trials/*/result.json"))) == 1
    assert "stopped" not in spend("9", "--resume", status=0)
    told = json.loads(run_module("platform.status", "tofu_tiny", "--storage", runs, "--json").stdout)
    assert told["counts"] == {"total": 4, "done": 4, "running": 0, "failed": 0, "left": 0}
    assert told["driver"] is None
