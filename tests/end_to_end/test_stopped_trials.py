"""A real search that stops what falls behind: through the command, its report, its resume and another start."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support import small_sweep
from tests.support.environment import RunModule
from trainables.storage.folder_storage import Storage

SETTINGS = ("benchmark.split=forget25", "training.max_steps=4", "training.batch_size=8", "training.max_length=192")
SETTINGS += ("method=ga", "rectifier.name=none", "training.lr=log(1e-3..1e-1)", "training.eval_every=1")
SEARCH = ("search.stop_dominated=1", "search.floor=0.95")


@pytest.mark.slow
def test_a_search_stops_what_cannot_win_and_runs_it_no_more(
    trained_inputs: Any, run_module: RunModule, tmp_path: Path
) -> None:
    """GA at high rates loses all utility at once: the published point runs to its end, others do not."""
    shutil.copytree(trained_inputs.target, tmp_path / "models" / "full")
    shutil.copytree(trained_inputs.retain, tmp_path / "models" / "retain75")
    small_sweep.cut_short(trained_inputs.data, tmp_path / "data")
    settings = (f"benchmark.data={tmp_path / 'data'}", f"models={tmp_path / 'models'}", *SETTINGS, *SEARCH)
    arguments = ["tofu_tiny", *(part for setting in settings for part in ("--set", setting))]
    arguments += ["--strategy", "optuna", "--trials", "6", "--max-concurrent", "1"]
    store = Storage(tmp_path / "runs")

    def start(*more: str) -> str:
        done = run_module("platform.sweep", *arguments, *more, "--storage", store.root, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    said = start()
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
    assert "6 done, 0 to run" in start("--resume")
    assert {path.name for path in store.root.glob("trials/*")} == {result["id"] for result in results}
