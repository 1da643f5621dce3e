"""The target model that a process keeps from trial to trial: loaded once, and no trial leaves a trace in it."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.support.environment import TrialInputs
from tests.support.interrupted import configuration, finish, same
from trainables import benchmarks
from trainables.config.settings import Model, Resources
from trainables.config.trial import Rectifier, Trial
from trainables.trial import setup

CHANGES: dict[str, dict[str, Any]] = {
    "frozen": {"method": "npo", "rectifier": {"name": "gru", "gamma": 0.5, "tau": 1.0}},
    "rmu": {"method": "rmu", "objective": {"layer": 0}},
    "deepspeed": {"resources": {"zero_stage": 1}},
    "adapters": {},
}
"""What differs from GD by the plain engine: each of them changes the model that it is given in another way."""


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


def test_trials_in_a_row_load_one_model_and_leave_no_trace_in_it(
    trials: dict[str, Trial], tmp_path: Path, loads: list[Any]
) -> None:
    """There and back, so that each trial follows two others. Its first numbers are a new process's: test_run."""
    names = list(trials)
    stores = {name: finish(trials[name], tmp_path / "there")[1] for name in names}
    for name in reversed(names):
        same(stores[name], finish(trials[name], tmp_path / "back")[1], trials[name])
    assert len(loads) == 1


def test_a_model_is_kept_by_content_and_precision_where_memory_has_room(
    trials: dict[str, Trial], loads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = trials["first"].target

    def load(target: Model, precision: str = "fp32", times: int = 2) -> int:
        for _ in range(times):
            setup.load_target_model(target, precision, Resources(), torch.device("cpu"))
        return len(loads)

    assert load(known) == 1
    assert load(known, "bf16") == 2
    assert loads == [torch.float32, torch.bfloat16]
    assert load(known.model_copy(update={"fingerprint": None})) == 4, "by its path alone nothing is kept"
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1e5))
    assert load(known) == 6, "nor where memory is short"


# Tokenised rows


def test_rows_are_made_anew_for_whatever_they_depend_on(trials: dict[str, Trial], monkeypatch: Any) -> None:
    made: list[Any] = []
    tofu = benchmarks.get_benchmark("tofu")
    monkeypatch.setattr(tofu, "training_examples", lambda *asked: made.append(asked) or ([], []))
    setup._keep_examples.cache_clear()

    def makes(part: str = "seed", value: Any = 0, **changes: Any) -> bool:
        before, trial = len(made), trials["first"]
        value = getattr(trial, part).model_copy(update=changes) if changes else value
        setup.load_training_examples(trial.model_copy(update={part: value}))
        return len(made) > before

    assert makes()
    assert not makes("seed", 3)
    for part, changed in (
        ("benchmark", {"template": "plain"}),
        ("benchmark", {"fingerprint": "files:other"}),
        ("target", {"fingerprint": "files:other"}),
        ("training", {"max_length": 64}),
    ):
        assert makes(part, **changed), changed
    assert makes(), "only the last four are kept"
    unknown = [("target", {"fingerprint": None}), ("benchmark", {"fingerprint": None}), ("resources", {"ranks": 2})]
    for part, changed in unknown * 2:
        assert makes(part, **changed), part
