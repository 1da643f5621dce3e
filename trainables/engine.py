"""The one file that knows DeepSpeed: a training engine whose gradient can be read and written before the step.

DeepSpeed has no public way to change a sharded gradient between backward and step; the private attributes used
here are those of the pinned version, and tests write a constant gradient and step with plain SGD to prove each.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from trainables.config import Resources, Training

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")

import deepspeed


class Engine:
    """A DeepSpeed engine. `shard()` is this rank's part of the gradient, averaged over ranks."""

    def __init__(self, inner: Any, world: int) -> None:
        self.inner = inner
        self.world = world

    @property
    def module(self) -> Any:
        return self.inner.module

    @property
    def device(self) -> torch.device:
        return torch.device(self.inner.device)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Add one micro-batch's gradient; `last` ends the pass and makes `shard()` readable.

        The loss is this rank's share of a global sum; DeepSpeed averages over ranks, hence the factor.
        """
        self.inner.set_gradient_accumulation_boundary(last)
        self.inner.backward(loss * self.world)

    def shard(self) -> list[torch.Tensor]:
        """Views of this rank's gradient whose writes reach `step()`."""
        optimizer = self.inner.optimizer
        return [part for group in sorted(optimizer.averaged_gradients) for part in optimizer.averaged_gradients[group]]

    def reduce(self, value: torch.Tensor) -> torch.Tensor:
        """Sum over the ranks that hold different shards."""
        if self.world > 1:
            dist.all_reduce(value)
        return value

    def clear(self) -> None:
        """Forget the gradient of the last pass, so that the next one starts from zero."""
        for part in self.shard():
            part.zero_()
        self.inner.optimizer.zero_grad()

    def step(self, lr: float) -> None:
        for group in self.inner.optimizer.param_groups:
            group["lr"] = lr
        self.inner.step()

    def close(self) -> None:
        self.inner.destroy()


def create(network: Any, training: Training, resources: Resources) -> Engine:
    """A DeepSpeed engine around `network`. The process group must exist (`join`)."""
    optimizer = _optimizer([parameter for parameter in network.parameters() if parameter.requires_grad], training)
    inner, *_ = deepspeed.initialize(
        model=network, optimizer=optimizer, config=_config(resources), dist_init_required=False
    )
    return Engine(inner, dist.get_world_size())


def _optimizer(parameters: list[torch.nn.Parameter], training: Training) -> torch.optim.Optimizer:
    if training.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=training.lr, weight_decay=training.weight_decay)
    return torch.optim.AdamW(
        parameters,
        lr=training.lr,
        betas=training.betas,
        eps=training.eps,
        weight_decay=training.weight_decay,
    )


def join(device: torch.device) -> None:
    """Make this process a group of one rank, unless it is in a group already."""
    if dist.is_initialized():
        return
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def _config(resources: Resources) -> dict[str, Any]:
    """Accumulation, loss scaling and clipping are ours: one micro-batch, no clipping, no schedule in DeepSpeed."""
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0,
        "zero_optimization": {"stage": resources.zero_stage},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 10**9,
    }
    if resources.precision == "bf16":
        config |= {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    return config


deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
