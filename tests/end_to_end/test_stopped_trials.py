"""Real sweeps that stop, or stop trials: spent GPU-hours, a search; and how they go on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.end_to_end.test_sweep_end_to_end import SETTINGS
from tests.support import small_sweep
from tests.support.environment import RunModule, TrialInputs, type_settings
from trainables.storage.folder_storage import Storage

Start = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.slow
SEARCHED = ("training.lr=log(1e-3..1e-1)", "training.eval_every=1", "search.stop_dominated=1", "search.floor=0.95")
GRADIENTS, ONE = ("--only", "method=ga,npo"), ("--max-concurrent", "1")


@pytest.fixture
def start(run_module: RunModule, tmp_path: Path) -> Start:
    """`start(inputs, settings, *more, status=0)`: a start of tofu_tiny with a models folder and rows of its own."""

    def run(inputs: TrialInputs, settings: tuple[str, ...], *more: str, status: int = 0) -> Any:
        if not (tmp_path / "models").is_dir():
            small_sweep.write_inputs(inputs, tmp_path)
        folders = (f"benchmark.data={tmp_path / 'data'}", f"models={tmp_path / 'models'}")
        typed = ["tofu_tiny", *type_settings((*folders, *settings)), *more]
        done = run_module("platform.sweep", *typed, "--storage", tmp_path / "runs", OMP_NUM_THREADS="1")
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


def test_spent_gpu_hours_stop_a_sweep_that_goes_on_with_more(
    start: Start, trial_inputs: TrialInputs, run_module: RunModule, tmp_path: Path
) -> None:
    """The preparation spends a small budget alone; with a little more one trial begins, and ends; with it no other."""
    runs = tmp_path / "runs"

    def spend(hours: str, *more: str, status: int = 3) -> str:
        return start(trial_inputs, SETTINGS, *GRADIENTS, "--gpu-hours", hours, *more, status=status).stdout

    def finished() -> set[str]:
        return {path.parent.name for path in runs.glob("trials/*/result.json")}

    said = spend("0.00001", *ONE)
    assert "stopped: --gpu-hours 1e-05: " in said
    assert "4 trials left; go on with a larger --gpu-hours and --resume" in said
    (ledger,) = (runs / "sweeps").glob("*.spent")
    before = json.loads(ledger.read_text())["gpu_seconds"]
    assert before > 0.036
    little = f"{(before + 1.0) / 3600:.9f}"
    assert "3 trials left" in spend(little, *ONE, "--resume")
    results = finished()
    assert len(results) == 1
    assert "3 trials left" in spend(little, "--resume")
    assert finished() == results
    assert "stopped" not in spend("9", "--resume", status=0)
    told = json.loads(run_module("platform.status", "tofu_tiny", "--storage", runs, "--json").stdout)
    assert told["counts"] == {"total": 4, "done": 4, "running": 0, "failed": 0, "left": 0}
    assert told["driver"] is None


def test_a_search_stops_what_cannot_win_and_runs_it_no_more(
    start: Start, trained_inputs: TrialInputs, tmp_path: Path
) -> None:
    """GA at high rates loses all utility at once: the published point runs to its end, others do not."""
    store = Storage(tmp_path / "runs")
    chosen = (*SETTINGS[:4], "method=ga", "rectifier.name=none", *SEARCHED)
    options = ("--strategy", "optuna", "--trials", "6", *ONE)
    said = start(trained_inputs, chosen, *options).stdout
    results = [store.result(path.name) or {} for path in store.root.glob("trials/*")]
    stopped = [result for result in results if result["status"] == "stopped"]
    saved = sum(result["error"]["steps"] - result["error"]["step"] for result in stopped)
    assert saved > 0
    assert f"search: {len(stopped)} of 6 trials stopped, {saved} of 24 steps saved" in said.splitlines()
    assert len(re.findall(r"stopped: FQ -\d+\.\d\d, MU 0\.\d+ at step [1-3] of 4: ", said)) == len(stopped)
    published = min(results, key=lambda result: result["started"])
    assert (published["status"], published["training"]["steps"]) == ("finished", 4)
    (report,) = (store.root / "reports").iterdir()
    assert f"{len(stopped)} stopped" in (report / "index.html").read_text()
    assert len(pd.read_csv(report / "tables/failures.csv")) == len(stopped)
    assert "6 done, 0 to run" in start(trained_inputs, chosen, *options, "--resume").stdout
    assert {path.name for path in store.root.glob("trials/*")} == {result["id"] for result in results}
