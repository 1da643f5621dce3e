"""A rank's live tensors in GRU's steps under DeepSpeed, as PyTorch's memory tracker counts them, on N ranks."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.support import ranks
from tests.support.ports import free_port

SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 4, "vocab_size": 500, "max_position_embeddings": 64}
LENGTH = 8


def run(world: int, jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, int]]:
    """Return what rank 0 counted of each job: bytes `held` before the optimizer's step, and the `peak` of a step."""
    ranks.start(_rank, (world, jobs, folder, f"tcp://127.0.0.1:{free_port()}"), world)
    return torch.load(folder / f"{world}.pt")


def _rank(rank: int, world: int, jobs: list[dict[str, Any]], folder: Path, address: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    found = [_count(world, **job) for job in jobs]
    if rank == 0:
        torch.save(found, folder / f"{world}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _count(world: int, stage: int, precision: Any, observe: int | None) -> dict[str, int]:
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.support.fake_step import Tracker
    from trainables.common.tokenized_row import Example
    from trainables.config.settings import Resources, Training
    from trainables.methods import method_constants, objectives, rectifiers
    from trainables.training import engine, loop

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
