"""A sweep whose models and rows are on the hub: they are fetched once, and its trials ask the hub nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from platform.plan import requirements
from platform.plan.build import make_plan
from platform.plan.overrides import apply
from platform.preparation import hub as hubs
from search_spaces.tofu_tiny import SWEEP
from tests.support import hub_server
from tests.support.environment import House, RunModule
from tests.support.hub_bench import Bench
from tests.support.small_sweep import cut_short

TARGET, ROWS = "somebody/tiny", "somebody/authors"


@dataclass(frozen=True)
class Place:
    """A hub, and a sweep of two trials that takes its target model and its rows from there."""

    hub: hub_server.Hub
    run_module: RunModule
    home: Path

    def start(self, *more: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "target": TARGET,
            "benchmark.data": ROWS,
            "models": str(self.home / "models_here"),
            "benchmark.split": "forget25",
            "benchmark.limit": "2",
            "training.max_steps": "1",
        }
        given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        chosen = ["--only", "method=ga,gd", "--only", "rectifier.name=none", "--storage", str(self.home / "runs")]
        environment = self.hub.environment(self.home / "cache")
        return self.run_module("platform.sweep", "tofu_tiny", *chosen, *given, *more, timeout=300, **environment)

    def results(self) -> list[dict[str, Any]]:
        found = sorted((self.home / "runs" / "trials").glob("*/result.json"))
        return [json.loads(file.read_text()) for file in found]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, house: House, run_module: RunModule) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("hub")
    shutil.copytree(house.target, home / "models" / TARGET)
    shutil.copytree(house.retain, home / "models_here" / "retain75")
    (home / "datasets" / "somebody").mkdir(parents=True)
    cut_short(house.data, home / "datasets" / ROWS)
    with hub_server.serving(home) as hub:
        yield Place(hub, run_module, home)


@pytest.mark.slow
def test_a_sweep_fetches_once_and_its_trials_nothing(place: Place) -> None:
    done = place.start()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fetching somebody/tiny at " in done.stdout
    commit = place.hub.commit("models", TARGET)
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        assert place.hub.asked.count(f"GET /{TARGET}/resolve/{commit}/{file}") == 1
    rows = [line for line in place.hub.asked if line.startswith("GET /datasets") and line.endswith(".json")]
    assert len(rows) == len(set(rows)) > 0
    last = max(number for number, line in enumerate(place.hub.asked) if "/resolve/" in line)
    assert place.hub.asked[last + 1 :] == []
    results = place.results()
    assert [result["status"] for result in results] == ["finished"] * 2
    assert all(result["hub"][TARGET] == commit for result in results)
    assert {result["config"]["target"]["fingerprint"] for result in results} == {f"hub:{TARGET}@main"}


@pytest.mark.slow
def test_a_second_start_keeps_to_the_first_ones_commit(place: Place) -> None:
    before = {result["id"] for result in place.results()}
    commit = place.hub.commit("models", TARGET)
    config = place.home / "models" / TARGET / "config.json"
    config.write_text(config.read_text() + "\n")
    place.hub.asked.clear()
    done = place.start("--seeds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{TARGET}: 'main' is now " in done.stdout
    assert place.hub.count("/resolve/") == 0
    later = [result for result in place.results() if result["id"] not in before]
    assert len(later) == 2
    assert all(result["hub"][TARGET] == commit for result in later)


@pytest.mark.slow
def test_a_planned_trial_asks_the_hub_nothing(
    bench: Bench, house: House, run_module: RunModule, tmp_path: Path
) -> None:
    shutil.copytree(house.target, tmp_path / "models" / "somebody" / "taught")
    (tmp_path / "datasets" / "somebody").mkdir(parents=True)
    cut_short(house.data, tmp_path / "datasets" / ROWS)
    shutil.copytree(house.retain, tmp_path / "models_here" / "retain75")
    settings = ["target=somebody/taught", f"benchmark.data={ROWS}", f"models={tmp_path / 'models_here'}"]
    settings += ["benchmark.split=forget25", "benchmark.limit=2", "training.max_steps=1"]
    chosen = ["method=gd", "rectifier.name=none"]
    plan = make_plan(apply(SWEEP, settings), bench.store, only=chosen)
    assert [thing.label for thing in plan.hub] == [f"data set {ROWS}", "model somebody/taught"]
    assert len(requirements.of(plan.sweep, plan.hub, bench.store)) == 2
    hubs.fetch(plan, bench.store, bench.said.append)
    assert requirements.of(plan.sweep, plan.hub, bench.store) == ()
    (trial,) = plan.trials
    config = tmp_path / "config.json"
    config.write_text(trial.model_copy(update={"retain_evaluation": None}).model_dump_json())
    bench.hub.asked.clear()
    environment = bench.hub.environment(tmp_path / "cache")
    done = run_module("trainables.run", config, "--storage", bench.store.root, timeout=300, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert bench.hub.asked == []
    (result,) = (json.loads(file.read_text()) for file in bench.store.root.glob("trials/*/result.json"))
    assert result["hub"].keys() == {"somebody/taught", ROWS}
    assert result["config"]["target"]["fingerprint"] == "hub:somebody/taught@main"
