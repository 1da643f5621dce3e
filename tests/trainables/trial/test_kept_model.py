"""The target model that a process keeps from trial to trial: loaded once, and no trial leaves a trace in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.support.environment import RunModule, TrialInputs
from tests.support.interrupted import configuration, finish, same
from trainables import benchmarks
from trainables.config.settings import Benchmark, Model, Rectifier, Resources
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import open_storage
from trainables.trial import setup

CHANGES: dict[str, dict[str, Any]] = {
    "frozen": {"method": "npo", "rectifier": {"name": "gru", "gamma": 0.5, "tau": 1.0}},
    "rmu": {"method": "rmu", "objective": {"layer": 0}},
    "deepspeed": {"resources": {"zero_stage": 1}},
    "vector": {"method": "tru", "task_vector": {"stg": 4.0, "batches": 2, "steps": 1}},
    "bf16": {"resources": {"precision": "bf16"}},
    "adapters": {},
}
"""What differs from GD by the plain engine: each of them changes the model that it is given in another way."""
SLOW = ("deepspeed", "vector", "bf16")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Return the precision of each model that was loaded from disk; nothing is kept before and after."""
    real, loaded = AutoModelForCausalLM.from_pretrained, []

    def load(*asked: Any, dtype: torch.dtype, **more: Any) -> Any:
        loaded.append(dtype)
        return real(*asked, dtype=dtype, **more)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)
    setup._keep_target.cache_clear()
    yield loaded
    setup._keep_target.cache_clear()


@pytest.fixture(scope="module")
def trials(trial_inputs: TrialInputs) -> dict[str, Trial]:
    first = configuration(trial_inputs, every=None, max_steps=2, max_length=128).model_dump()
    first |= {"method": "gd", "rectifier": Rectifier().model_dump(), "resources": Resources().model_dump()}
    first["benchmark"]["limit"] = 1
    adapted = {"training": first["training"] | {"lora_rank": 2}}
    return {"first": Trial.model_validate(first)} | {
        name: Trial.model_validate(first | (change or adapted)) for name, change in CHANGES.items()
    }


@pytest.fixture(scope="module")
def fresh(trials: dict[str, Trial], run_module: RunModule, tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """Return the storage of GD's trial in a process of its own."""
    place = tmp_path_factory.mktemp("fresh")
    (place / "config.json").write_text(trials["first"].model_dump_json())
    assert run_module("trainables.run", place / "config.json", "--storage", place / "runs").returncode == 0
    return open_storage(str(place / "runs"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CHANGES]
)
def test_trials_of_one_process_equal_those_that_load_their_model(
    trials: dict[str, Trial], fresh: Storage, tmp_path: Path, loads: list[Any], name: str
) -> None:
    """GD's follows another one, which then follows GD's."""
    first, other = trials["first"], trials[name]
    alone, place = finish(other, tmp_path / "alone")
    _, after = finish(first, tmp_path / "after")
    same(fresh, after, first)
    again, second = finish(other, tmp_path / "again")
    assert len(loads) == {"bf16": 3, "vector": 3}.get(name, 1)  # a direction is made from a model of its own, twice
    if name == "vector":  # it has no steps
        assert alone["metrics"] == again["metrics"]
    else:
        same(place, second, other)


def test_a_model_is_loaded_once_for_trials_in_a_row(
    trials: dict[str, Trial], tmp_path: Path, loads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ("first", "frozen", "rmu", "adapters", "deepspeed", "first")
    for number, name in enumerate(row):
        finish(trials[name], tmp_path / str(number), keep=False)
    assert len(loads) == 1
    bf16 = trials["bf16"]
    finish(bf16, tmp_path / "other", keep=False)
    assert loads == [torch.float32, torch.bfloat16]
    unknown = trials["first"].model_copy(
        update={"target": trials["first"].target.model_copy(update={"fingerprint": None})}
    )
    for number in range(2):
        finish(unknown, tmp_path / f"unknown{number}", keep=False)
    assert len(loads) == 4, "by its path alone nothing is kept"
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1e5))
    for number in range(2):
        finish(trials["first"], tmp_path / f"short{number}", keep=False)
    assert len(loads) == 6, "nor where memory is short"


# Tokenised rows


def test_rows_are_made_anew_for_whatever_they_depend_on(trial_inputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        benchmarks.get_benchmark("tofu"), "training_examples", lambda *asked: made.append(asked) or ([], [])
    )
    setup._keep_examples.cache_clear()
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
