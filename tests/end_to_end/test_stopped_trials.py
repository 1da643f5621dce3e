"""A real sweep that stops when its GPU-hours are spent, and how it goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_sweep_end_to_end import SETTINGS
from tests.support import small_sweep
from tests.support.environment import RunModule, TrialInputs, clean_environment, type_settings

pytestmark = pytest.mark.slow
GRADIENTS, ONE = ("--only", "method=ga,npo"), ("--max-concurrent", "1")


def type_words(inputs: TrialInputs, place: Path) -> list[str]:
    """Return the words of a start of tofu_tiny with a models folder and rows of its own."""
    settings = (*small_sweep.write_inputs(inputs, place), *SETTINGS)
    return ["tofu_tiny", *type_settings(settings), *GRADIENTS, "--storage", str(place / "runs")]


def test_mlflow_shows_no_run_that_nobody_runs_after_an_interrupt(
    trial_inputs: TrialInputs, root: Path, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    command = [sys.executable, "-m", "platform.sweep", *type_words(trial_inputs, tmp_path), *ONE]
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


def test_spent_gpu_hours_stop_a_sweep_that_goes_on_with_more(
    trial_inputs: TrialInputs, run_module: RunModule, tmp_path: Path
) -> None:
    """The preparation spends a small budget alone; with a little more one trial begins, and ends; with it no other."""
    runs, typed = tmp_path / "runs", type_words(trial_inputs, tmp_path)

    def spend(hours: str, *more: str, status: int = 3) -> str:
        done = run_module("platform.sweep", *typed, "--gpu-hours", hours, *more, OMP_NUM_THREADS="1")
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
