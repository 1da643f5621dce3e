"""Trials that cannot end well end as known outcomes: memory that runs out, a model that leaves the finite numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_resume import configuration, finish

from trainables import loop, passes, storage, trial


def run_out(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Let the device hold at most `most` rows of a forward pass; the sizes that were tried."""
    tried: list[int] = []
    real = passes.forward

    def forward(engine: Any, term: Any, rows: Any, *rest: Any) -> Any:
        tried.append(len(rows))
        if len(rows) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return real(engine, term, rows, *rest)

    monkeypatch.setattr(passes, "forward", forward)
    return tried


def test_memory_that_runs_out_is_tried_again_with_half_the_micro_batch(
    house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configuration(house, every=None)
    whole, _ = finish(config, tmp_path / "whole")
    tried = run_out(monkeypatch, most=4)
    found, store = finish(config, tmp_path / "small")
    assert tried[0] == 8
    assert set(tried[1:]) == {4}
    assert found["status"] == "finished"
    assert found["topology"]["micro_batch"] == 4
    assert found["training"]["steps"] == whole["training"]["steps"]
    assert found["metrics"]["model_utility"] == pytest.approx(whole["metrics"]["model_utility"], abs=2e-3)
    assert not (store.trial(config.id()) / trial.RETRY).exists()


def test_memory_that_runs_out_twice_is_an_outcome(house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(house, every=None)
    tried = run_out(monkeypatch, most=2)
    found, store = finish(config, tmp_path)
    assert tried == [8, 4]
    assert found["status"] == "out_of_memory"
    assert found["error"]["message"].startswith("CUDA out of memory")
    assert found["error"]["step"] == 1
    assert store.result(config.id()) == found


def test_a_loss_that_leaves_the_finite_numbers_names_the_step(
    house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configuration(house, every=None)
    real = loop.passes.effective_batch

    def effective_batch(engine: Any, plan: Any, *rest: Any) -> Any:
        loss, tokens = real(engine, plan, *rest)
        calls.append(loss)
        return (float("nan") if len(calls) == 6 else loss), tokens

    calls: list[float] = []
    monkeypatch.setattr(loop.passes, "effective_batch", effective_batch)
    found, store = finish(config, tmp_path)
    assert found["status"] == "diverged"
    assert found["error"] == {"kind": "diverged", "message": "loss is nan at step 3", "step": 3}
    assert len(storage.read_rows(store.trial(config.id()) / storage.STEPS)) == 2


def test_adapters_alone_are_trained_and_rectified(house: Any, tmp_path: Path) -> None:
    """LoRA: the kept weights are plain ones, differ from the target's in linear layers only, by rank-2 matrices."""
    base = configuration(house, every=None)
    config = base.model_copy(update={"training": base.training.model_copy(update={"lora_rank": 2, "lr": 2e-2})})
    found, store = finish(config, tmp_path)
    assert found["status"] == "finished", found["error"]
    steps = storage.read_rows(store.trial(config.id()) / storage.STEPS)
    assert all(step["grad_norm"] > 0 for step in steps)
    assert abs(steps[-1]["loss"] - steps[0]["loss"]) > 0.1
    weights = load_file(store.trial(config.id()) / trial.WEIGHTS / "model.safetensors")
    origin = load_file(house.target / "model.safetensors")
    assert weights.keys() == origin.keys()
    for name in origin:
        change = weights[name] - origin[name]
        if "_proj" in name:
            assert 0 < torch.linalg.matrix_rank(change.double(), rtol=1e-3) <= 2, name
        else:
            assert not change.any(), name
