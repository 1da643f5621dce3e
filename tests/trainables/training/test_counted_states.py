"""States and buffers of the memory plan against the live tensors of DeepSpeed: all stages, precisions, 1 to 4 ranks."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

from tests.support import ranks
from tests.support.fake_step import Tracker
from trainables.common.tokenized_row import Example
from trainables.config.settings import Model, Rectifier, Resources, Training
from trainables.config.trial import Trial
from trainables.methods import method_constants, objectives, rectifiers
from trainables.training import engine, loop, memory

SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 4, "vocab_size": 500, "max_position_embeddings": 64}
LENGTH = 8

JOBS: list[dict[str, Any]] = [
    {"stage": stage, "precision": precision, "observe": observe}
    for stage, precision, observe in (
        *((stage, "fp32", None) for stage in range(4)),
        *((stage, "bf16", None) for stage in (1, 2, 3)),
        (2, "bf16", 1),
    )
]


def plan(world: int, stage: int, precision: Any, observe: int | None) -> memory.Peak:
    trial = Trial(
        method="ga",
        rectifier=Rectifier(name="gru", gamma=0.8),
        target=Model(path="m"),
        training=Training(batch_size=world),
        resources=Resources(ranks=world, gpus=1, zero_stage=stage, precision=precision),
        observe=observe,
    )
    shape = memory.shape_of(SIZES)
    assert shape is not None
    return memory.peak(trial, shape, stage, 1, LENGTH)


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_rank_holds_what_is_planned(world: int, tmp_path: Path) -> None:
    """ZeRO 3 keeps its bucket and, on several ranks, small weights gathered between passes, too."""
    for job, found in zip(JOBS, count(world, JOBS, tmp_path), strict=True):
        planned = plan(world, **job)
        print(world, job, {name: round(size / 1e6, 2) for name, size in found.items()}, planned)
        kept = planned.buffers if job["stage"] == 3 else 0
        held = planned.states.total
        assert held <= 1.01 * found["held"] <= 1.01 * (1.01 * held + kept), job
        assert 0.75 * planned.training <= found["peak"] <= planned.training, job


def count(world: int, jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, int]]:
    """Return what rank 0 counted of each job: bytes `held` before the optimizer's step, and the `peak` of a step."""
    ranks.start(_rank, (world, jobs, folder), world)
    return torch.load(folder / f"{world}.pt")


def _rank(rank: int, world: int, jobs: list[dict[str, Any]], folder: Path) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group-{world}", rank=rank, world_size=world)
    found = [_count(world, **job) for job in jobs]
    if rank == 0:
        torch.save(found, folder / f"{world}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _count(world: int, stage: int, precision: Any, observe: int | None) -> dict[str, int]:
    training = Training(batch_size=world, max_steps=2)
    resources = Resources(ranks=world, zero_stage=stage, precision=precision)
    found: dict[str, int] = {}
    gc.collect()
    tracker = Tracker()
    with tracker:
        network: Any = LlamaForCausalLM(LlamaConfig(**SIZES))
        network = network.to(torch.bfloat16) if precision == "bf16" else network
        runner = engine.create_engine(network.train(), training, resources)
        step = runner.step

        def counted_step(lr: float) -> None:
            gc.collect()
            found["held"] = tracker.total("current")
            step(lr)

        runner.step = counted_step
        forget, retain = ([Example(tuple(range(first, first + LENGTH)), 1)] * world for first in (3, 50))
        task = loop.TrainingTask(
            forget=forget,
            retain=retain,
            objective=objectives.make_objective("ga", method_constants.Constants()),
            rectifier=rectifiers.make_rectifier("gru", 0.8, None),
            training=training,
            seed=0,
            pad=0,
            observe=observe,
        )
        list(loop.train(runner, task))
        found["peak"] = tracker.total("peak")
    runner.close()
    return found
