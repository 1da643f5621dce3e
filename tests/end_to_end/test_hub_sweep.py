"""A sweep whose models and rows are on the hub: they are fetched once, and its trials ask the hub nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.environment import RunModule, TrialInputs, type_settings
from tests.support.hub_server import HubBench
from tests.support.small_sweep import cut_short

TARGET, ROWS = "somebody/taught", "somebody/authors"


@pytest.mark.slow
def test_a_sweep_fetches_once_and_its_trials_nothing(
    bench: HubBench, trial_inputs: TrialInputs, run_module: RunModule, tmp_path: Path
) -> None:
    shutil.copytree(trial_inputs.target, bench.hub.home / "models" / TARGET)
    (bench.hub.home / "datasets" / "somebody").mkdir(parents=True)
    cut_short(trial_inputs.data, bench.hub.home / "datasets" / ROWS)
    shutil.copytree(trial_inputs.retain, tmp_path / "models_here" / "retain75")
    settings = [f"target={TARGET}", f"benchmark.data={ROWS}", f"models={tmp_path / 'models_here'}"]
    settings += ["benchmark.split=forget25", "benchmark.limit=2", "training.max_steps=1"]
    chosen = ["--only", "method=ga,gd", "--only", "rectifier.name=none", "--storage", str(bench.store.root)]
    environment = {"HF_ENDPOINT": bench.hub.url, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_TELEMETRY": "1"}

    def start(*more: str) -> str:
        done = run_module("platform.sweep", "tofu_tiny", *chosen, *type_settings(settings), *more, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert f"fetching {TARGET} at " in start()
    commit = bench.hub.commit("models", TARGET)
    fetched = bench.hub.downloads()
    assert {f"GET /{TARGET}/resolve/{commit}/{name}" for name in ("model.safetensors", "config.json")} <= {*fetched}
    assert len(fetched) == len(set(fetched))
    config = bench.hub.home / "models" / TARGET / "config.json"
    config.write_text(config.read_text() + "\n")
    bench.hub.requests.clear()
    start("--seeds", "1")
    assert bench.hub.requests == []
    results = [json.loads(file.read_text()) for file in bench.store.root.glob("trials/*/result.json")]
    assert [result["status"] for result in results] == ["finished"] * 4
    assert {result["hub"][TARGET] for result in results} == {commit}
    assert {result["config"]["target"]["fingerprint"] for result in results} == {f"hub:{TARGET}@main"}
