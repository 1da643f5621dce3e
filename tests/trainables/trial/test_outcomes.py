"""Trials that cannot end well end as known outcomes: memory that runs out, a model that leaves the finite numbers."""

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.interrupted import alike, configuration, finish
from trainables.common.errors import first_error_line
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import RETRY, STEPS, WEIGHTS
from trainables.storage.opening import open_storage
from trainables.training import forward_backward
from trainables.workers import ray_processes


def run_out(monkeypatch: pytest.MonkeyPatch, most: int, error: Exception) -> list[int]:
    """Let the device hold at most `most` rows of a forward pass; the sizes that were tried. A retry begins afresh."""
    tried: list[int] = []
    real, full = forward_backward.forward_micro_batch, []

    def forward(engine: Any, term: Any, rows: Any, *rest: Any) -> Any:
        tried.append(len(rows))
        assert not any(part() for part in full), "the first attempt's memory is not released"
        if len(rows) > most:
            full.extend(map(weakref.ref, (engine, engine.inner, next(engine.module.parameters()))))
            raise type(error)(*error.args)  # a kept one keeps the frames that it went through
        return real(engine, term, rows, *rest)

    monkeypatch.setattr(forward_backward, "forward_micro_batch", forward)
    return tried


def test_memory_that_runs_out_is_tried_again_with_half_the_micro_batch(
    trial_inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second time is an outcome."""
    config = configuration(trial_inputs, every=None)
    whole, _ = finish(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        tried = run_out(patch, 4, RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate()`"))
        found, store = finish(config, tmp_path / "small")
    assert (tried[0], max(tried[1:])) == (8, 4)
    assert (found["status"], found["topology"]["micro_batch"]) == ("finished", 4)
    assert found["training"]["steps"] == whole["training"]["steps"]
    assert found["metrics"]["model_utility"] == pytest.approx(whole["metrics"]["model_utility"], abs=2e-3)
    assert not (store.trial(config.id()) / RETRY).exists()
    tried = run_out(monkeypatch, 2, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    found, store = finish(config, tmp_path / "smaller")
    assert tried == [8, 4]
    assert (found["status"], found["error"]["step"]) == ("out_of_memory", 1)
    assert found["error"]["message"].startswith("CUDA out of memory")
    assert first_error_line(MemoryError()) == "MemoryError", "of an error without a word"
    assert store.result(config.id()) == found


@pytest.mark.slow
def test_a_rank_whose_memory_runs_out_does_not_hold_the_others(
    trial_inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_session: None
) -> None:
    """All ranks start again with half the micro-batch and give what one process gives."""

    def starve(trial: Trial, location: str, keep: bool) -> None:
        """What a rank of Ray Train runs, pickled by value: on rank 1 more than two rows fill the memory."""
        from trainables.training import forward_backward
        from trainables.workers import ray_processes

        real = forward_backward.forward_micro_batch

        def forward(engine: Any, term: Any, rows: Any, *rest: Any) -> Any:
            if len(rows) > 2 and engine.rank == 1:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return real(engine, term, rows, *rest)

        forward_backward.forward_micro_batch = forward
        ray_processes.run_trial_on_one_rank(trial, location, keep)

    config = configuration(trial_inputs, ranks=2, stage=2, every=None)
    monkeypatch.setattr(ray_processes, "run_trial_on_one_rank", starve)
    store = open_storage(str(tmp_path / "two"))
    found = ray_processes.run_trial_on_ranks(config, store, keep=True)
    assert (found["status"], found["topology"]["micro_batch"]) == ("finished", 2), found["error"]
    assert store.result(config.id()) == found
    assert not (store.trial(config.id()) / RETRY).exists()
    plain = configuration(trial_inputs, every=None)
    finish(plain, tmp_path / "one")
    alike(open_storage(str(tmp_path / "one")).trial(plain.id()), store.trial(config.id()), trial_inputs.target)


def test_collapsed_model_stops_and_is_evaluated_as_it_is(trial_inputs: Any, tmp_path: Path) -> None:
    """The bar is between a step's retain loss and the ones before it: training ends there, as a short one's does."""

    def wild(**training: Any) -> Trial:
        return configuration(trial_inputs, every=None, lr=2e-2, **training).model_copy(update={"method": "ga"})

    whole_config = wild()
    _, whole = finish(whole_config, tmp_path / "whole")
    rows = atomic_files.read_parquet_rows(whole.trial(whole_config.id()) / STEPS)
    losses = [row["retain_loss"] for row in rows]
    step = next(number for number in range(2, 8) if losses[number - 1] > max(losses[: number - 1]))
    bar = (losses[step - 1] + max(losses[: step - 1])) / 2
    config = wild(stop_above=bar)
    found, store = finish(config, tmp_path / "stopped")
    assert found["status"] == "collapsed"
    message = f"retain loss {losses[step - 1]:.4g} is above training.stop_above={bar:g} at step {step}"
    assert found["error"] == {"kind": "collapsed", "message": message, "step": step}
    stopped = atomic_files.read_parquet_rows(store.trial(config.id()) / STEPS)
    assert [row["retain_loss"] for row in stopped] == losses[:step]
    cut, _ = finish(wild(max_steps=step), tmp_path / "short")
    assert found["metrics"] == cut["metrics"]
    assert found["metrics"]["model_utility"] is not None
    assert (store.trial(config.id()) / WEIGHTS).is_dir()
