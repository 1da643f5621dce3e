"""What a process keeps from trial to trial: made once, of no effect on any number, dropped when it has become old."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas
import pytest

from tests.support import small_sweep
from trainables import benchmarks, run
from trainables.common import hashing
from trainables.config.settings import Benchmark, Model, Rectifier, Resources, Training
from trainables.config.trial import Trial
from trainables.storage.base import Storage
from trainables.training import loop
from trainables.trial import cache

TIMING = ["tokens_per_second", "peak_memory_bytes"]


@pytest.fixture(autouse=True)
def cold() -> None:
    cache.EXAMPLES.values.clear()
    cache.REFERENCE_SUMS.values.clear()


@pytest.fixture(scope="module")
def trial(trial_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """NPO, which needs the target model's likelihoods of the forget rows."""
    data = str(small_sweep.cut_short(trial_inputs.data, tmp_path_factory.mktemp("rows") / "data"))
    found = benchmarks.find("tofu").fingerprint(Benchmark(data=data, split=trial_inputs.split))
    target = Model(path=str(trial_inputs.target), fingerprint="files:" + hashing.hash_model(trial_inputs.target))
    return Trial(
        method="npo",
        benchmark=Benchmark(data=data, split=trial_inputs.split, fingerprint=found, limit=4),
        target=target,
        training=Training(lr=2e-3, batch_size=8, max_steps=2, epochs=10, max_length=192),
    )


def ended(trial: Trial, place: Path) -> tuple[dict[str, Any], pandas.DataFrame]:
    place.mkdir()
    (place / "config.json").write_text(trial.model_dump_json())
    assert run._run(place / "config.json", str(place)) == 0
    folder = Storage(place).trial(trial.id())
    steps = pandas.read_parquet(folder / "steps.parquet").drop(columns=TIMING)
    return json.loads((folder / "result.json").read_text()), steps


def test_a_second_trial_makes_neither_rows_nor_likelihoods_and_gives_the_same(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = trial.model_copy(update={"rectifier": Rectifier(name="gru", gamma=0.8, tau=1.0)})
    fresh, steps = ended(second, tmp_path / "fresh")
    cold_rows, cold_sums = dict(cache.EXAMPLES.values), dict(cache.REFERENCE_SUMS.values)
    cache.EXAMPLES.values.clear()
    cache.REFERENCE_SUMS.values.clear()
    ended(trial, tmp_path / "first")
    assert (cache.EXAMPLES.values, cache.REFERENCE_SUMS.values) == (cold_rows, cold_sums)
    with monkeypatch.context() as patch:
        patch.setattr(benchmarks.find("tofu"), "training_examples", None)
        patch.setattr(loop, "begin", None)
        again, steps_again = ended(second, tmp_path / "again")
    assert again["metrics"] == fresh["metrics"]
    pandas.testing.assert_frame_equal(steps, steps_again, check_exact=True)


def test_other_rows_lengths_models_and_sizes_are_made_anew(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(benchmarks.find("tofu"), "training_examples", lambda *asked: made.append(asked) or ([], []))

    def makes(**changes: Any) -> bool:
        before = len(made)
        cache.load_examples(trial.model_copy(update=changes), None)
        return len(made) > before

    assert makes()
    assert not makes(seed=3)
    assert makes(benchmark=trial.benchmark.model_copy(update={"template": "plain"}))
    assert makes(benchmark=trial.benchmark.model_copy(update={"fingerprint": "files:other"}))
    assert makes(target=trial.target.model_copy(update={"fingerprint": "files:other"}))
    assert makes(training=trial.training.model_copy(update={"max_length": 64}))
    assert len(cache.EXAMPLES.values) == cache.SIZE
    assert makes()  # the oldest has gone


def test_likelihoods_are_kept_by_all_that_they_depend_on(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(loop, "begin", lambda *asked: made.append(asked) or loop.State({0: 1.0}))

    def makes(drawn: Sequence[int] = (0, 1), micro_batch: int | None = None, stage: int = 1, **changes: Any) -> bool:
        before = len(made)
        objective = SimpleNamespace(needs_reference=True)
        task: Any = SimpleNamespace(objective=objective, micro_batch=micro_batch, drawn=lambda: list(drawn))
        state = cache.begin_training(trial.model_copy(update=changes), cast(Any, SimpleNamespace(stage=stage)), task)
        assert state.reference == {0: 1.0}
        assert state.reference is not None
        state.reference[0] = 2.0  # a trial may do with its own what it likes
        return len(made) > before

    def of(part: str, **changes: Any) -> dict[str, Any]:
        return {part: getattr(trial, part).model_copy(update=changes)}

    assert makes()
    assert not makes(seed=3, rectifier=Rectifier(name="gru", gamma=0.8))
    assert makes(drawn=(0, 2))
    assert makes(micro_batch=4)
    assert makes(stage=3)
    for changed in (
        of("training", max_length=64),
        of("training", batch_size=4),
        of("training", lora_rank=2),
        of("resources", precision="bf16"),
        of("resources", cpus=2),
        of("target", fingerprint="files:other"),
        of("target", attention="eager"),
        of("benchmark", fingerprint="files:other"),
    ):
        assert makes(**changed), changed


@pytest.mark.parametrize("unknown", ["target", "benchmark"])
def test_what_is_not_known_by_its_content_is_never_kept(
    trial: Trial, unknown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(benchmarks.find("tofu"), "training_examples", lambda *asked: made.append(asked) or ([], []))
    part = getattr(trial, unknown).model_copy(update={"fingerprint": None})
    for _ in range(2):
        cache.load_examples(trial.model_copy(update={unknown: part}), None)
        cache.load_examples(trial.model_copy(update={"resources": Resources(ranks=2)}), None)
    assert len(made) == 4
    assert not cache.EXAMPLES.values


def test_what_cannot_be_made_is_asked_for_again() -> None:
    kept = cache.LRU(2)

    def fails() -> None:
        raise ValueError("no room")

    for _ in range(2):
        with pytest.raises(ValueError, match="no room"):
            kept.get("a", fails)
    assert kept.get("a", lambda: 1) == kept.get("a", fails) == 1
    kept.get("b", lambda: 2)
    kept.get("a", fails)
    kept.get("c", lambda: 3)
    assert list(kept.values) == ["a", "c"]  # b was asked for longest ago
