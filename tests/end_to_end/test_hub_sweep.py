"""A sweep whose models and rows are on the hub: they are fetched once, and its trials ask the hub nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.environment import RunModule, TrialInputs, type_settings
from tests.support.hub_bench import HubBench
from tests.support.small_sweep import cut_short

TARGET, ROWS = "somebody/taught", "somebody/authors"


@pytest.fixture
def settings(bench: HubBench, trial_inputs: TrialInputs, tmp_path: Path) -> list[str]:
    """Return what makes a small sweep of TOFU take its target model and its rows from the hub."""
    shutil.copytree(trial_inputs.target, bench.hub.home / "models" / TARGET)
    (bench.hub.home / "datasets" / "somebody").mkdir(parents=True)
    cut_short(trial_inputs.data, bench.hub.home / "datasets" / ROWS)
    shutil.copytree(trial_inputs.retain, tmp_path / "models_here" / "retain75")
    found = [f"target={TARGET}", f"benchmark.data={ROWS}", f"models={tmp_path / 'models_here'}"]
    return [*found, "benchmark.split=forget25", "benchmark.limit=2", "training.max_steps=1"]


@pytest.mark.slow
def test_a_sweep_fetches_once_and_its_trials_nothing(
    bench: HubBench, settings: list[str], run_module: RunModule, tmp_path: Path
) -> None:
    chosen = ["--only", "method=ga,gd", "--only", "rectifier.name=none", "--storage", str(bench.store.root)]
    given = type_settings(settings)
    environment = bench.hub.environment(tmp_path / "cache")

    def start(*more: str) -> str:
        done = run_module("platform.sweep", "tofu_tiny", *chosen, *given, *more, **environment)
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
