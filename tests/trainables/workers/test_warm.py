"""Tokenised rows that a process keeps from trial to trial: made once, by all that they depend on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from tests.support import small_sweep
from trainables import benchmarks, run
from trainables.common import hashing
from trainables.config.settings import Benchmark, Model, Rectifier, Training
from trainables.config.trial import Trial
from trainables.storage.base import Storage
from trainables.trial import setup

TIMING = ["tokens_per_second", "peak_memory_bytes"]


@pytest.fixture(scope="module")
def trial(trial_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    data = str(small_sweep.cut_short(trial_inputs.data, tmp_path_factory.mktemp("rows") / "data"))
    found = benchmarks.find("tofu").fingerprint(Benchmark(data=data, split=trial_inputs.split))
    return Trial(
        method="npo",
        benchmark=Benchmark(data=data, split=trial_inputs.split, fingerprint=found, limit=4),
        target=Model(path=str(trial_inputs.target), fingerprint="files:" + hashing.hash_model(trial_inputs.target)),
        training=Training(lr=2e-3, batch_size=8, max_steps=2, epochs=10, max_length=192),
    )


def run_trial(trial: Trial, place: Path) -> tuple[dict[str, Any], pandas.DataFrame]:
    place.mkdir()
    (place / "config.json").write_text(trial.model_dump_json())
    assert run._run(place / "config.json", str(place)) == 0
    folder = Storage(place).trial(trial.id())
    steps = pandas.read_parquet(folder / "steps.parquet").drop(columns=TIMING)
    return json.loads((folder / "result.json").read_text()), steps


def test_a_second_trial_makes_no_rows_and_gives_the_same(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = trial.model_copy(update={"rectifier": Rectifier(name="gru", gamma=0.8, tau=1.0)})
    setup._load_examples.cache_clear()
    fresh, steps = run_trial(second, tmp_path / "fresh")
    setup._load_examples.cache_clear()
    run_trial(trial, tmp_path / "first")
    monkeypatch.setattr(benchmarks.find("tofu"), "training_examples", None)
    again, steps_again = run_trial(second, tmp_path / "again")
    assert again["metrics"] == fresh["metrics"]
    pandas.testing.assert_frame_equal(steps, steps_again, check_exact=True)


def test_rows_are_made_anew_for_whatever_they_depend_on(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(benchmarks.find("tofu"), "training_examples", lambda *asked: made.append(asked) or ([], []))
    setup._load_examples.cache_clear()

    def makes(part: str = "seed", value: Any = 0, **changes: Any) -> bool:
        before = len(made)
        value = getattr(trial, part).model_copy(update=changes) if changes else value
        setup.load_examples(trial.model_copy(update={part: value}))
        return len(made) > before

    assert makes()
    assert not makes("seed", 3)
    assert makes("benchmark", template="plain")
    assert makes("benchmark", fingerprint="files:other")
    assert makes("target", fingerprint="files:other")
    assert makes("training", max_length=64)
    assert makes(), "only the last four are kept"
    unknown: tuple[tuple[str, dict[str, Any]], ...] = (
        ("target", {"fingerprint": None}),
        ("benchmark", {"fingerprint": None}),
        ("resources", {"ranks": 2}),
    )
    for part, changes in unknown * 2:
        assert makes(part, **changes), part
