"""Real sweeps that stop before their trials do: spent GPU-hours, failures of one cause; and how they go on."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_sweep_end_to_end import SETTINGS
from tests.support import small_sweep
from trainables.storage.folder_storage import Storage

RunModule = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.slow


@pytest.fixture
def place(trial_inputs: Any, tmp_path: Path) -> Path:
    shutil.copytree(trial_inputs.target, tmp_path / "models" / "full")
    shutil.copytree(trial_inputs.retain, tmp_path / "models" / "retain75")
    small_sweep.cut_short(trial_inputs.data, tmp_path / "data")
    return tmp_path


def flags(place: Path, *more: str) -> list[str]:
    settings = (f"benchmark.data={place / 'data'}", f"models={place / 'models'}", *SETTINGS, *more)
    only = ["--only", "method=ga,npo"]
    return ["tofu_tiny", *(part for setting in settings for part in ("--set", setting)), *only]


def start(run_module: RunModule, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_module("platform.sweep", *arguments, "--storage", place / "runs", timeout=400, OMP_NUM_THREADS="1")


def test_spent_gpu_hours_stop_a_sweep_that_goes_on_with_more(run_module: RunModule, place: Path) -> None:
    """The preparation spends a small budget alone; with a little more one trial begins, and ends; with it no other."""
    arguments = flags(place)
    none = start(run_module, place, *arguments, "--gpu-hours", "0.00001", "--max-concurrent", "1")
    assert none.returncode == 3, none.stdout + none.stderr
    assert "stopped: --gpu-hours 1e-05: " in none.stdout
    assert "4 trials left; go on with a larger --gpu-hours and --resume" in none.stdout
    (ledger,) = (place / "runs" / "sweeps").glob("*.spent")
    before = json.loads(ledger.read_text())["gpu_seconds"]
    assert before > 0.036
    little = f"{(before + 1.0) / 3600:.9f}"
    done = start(run_module, place, *arguments, "--gpu-hours", little, "--max-concurrent", "1", "--resume")
    assert done.returncode == 3, done.stdout + done.stderr
    results = {path.parent.name for path in (place / "runs").glob("trials/*/result.json")}
    assert len(results) == 1
    assert "3 trials left" in done.stdout
    again = start(run_module, place, *arguments, "--gpu-hours", little, "--resume")
    assert again.returncode == 3
    assert "3 trials left" in again.stdout
    assert {path.parent.name for path in (place / "runs").glob("trials/*/result.json")} == results
    more = start(run_module, place, *arguments, "--gpu-hours", "9", "--resume", "--disk-budget", "1GB")
    assert more.returncode == 0, more.stdout + more.stderr
    assert "stopped" not in more.stdout
    told = json.loads(run_module("platform.status", "tofu_tiny", "--storage", place / "runs", "--json").stdout)
    assert told["counts"] == {"total": 4, "done": 4, "running": 0, "failed": 0, "left": 0}
    assert told["driver"] is None


def test_failures_of_one_cause_stop_the_sweep_with_it(run_module: RunModule, place: Path) -> None:
    """Every row is cut before its answer begins: no trial has anything to learn from."""
    arguments = flags(place, "training.max_length=8", "seed=0,1")
    done = start(run_module, place, *arguments, "--max-concurrent", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    store = Storage(place / "runs")
    results = [store.result(path.name) or {} for path in (store.root / "trials").iterdir()]
    assert [result["status"] for result in results] == ["failed"] * 5
    cause = results[0]["error"]["message"]
    assert f"stopped: the first 5 trials that ended all failed for the same cause: {cause}" in done.stdout
    assert "3 trials left; mend that, then go on with --resume --retry-failed" in done.stdout
