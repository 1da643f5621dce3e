"""Tokenised rows that a process keeps from trial to trial: made once, by all that they depend on."""

from __future__ import annotations

from typing import Any

import pytest

from trainables import benchmarks
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import Trial
from trainables.trial import setup


def test_rows_are_made_anew_for_whatever_they_depend_on(trial_inputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        benchmarks.get_benchmark("tofu"), "training_examples", lambda *asked: made.append(asked) or ([], [])
    )
    setup._load_examples.cache_clear()
    trial = Trial(
        method="npo",
        benchmark=Benchmark(data="data", split=trial_inputs.split, fingerprint="files:of-the-tests"),
        target=Model(path=str(trial_inputs.target), fingerprint="files:of-the-tests"),
    )

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
