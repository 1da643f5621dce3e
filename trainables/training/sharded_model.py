"""A model whose weights and gradients are split over ranks, parameter by parameter (PyTorch's FSDP2).

Task vectors need each parameter's weight, gradient and origin side by side, which DeepSpeed's flat shards do not give
(docs/decisions/0004). One rank in fp32 is a plain model.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from trainables.config.settings import Precision


@dataclass(frozen=True)
class ParameterRows:
    """This rank's rows `start` to `stop` of one parameter: fp32 views whose writes reach the model."""

    name: str
    parameter: nn.Parameter
    start: int
    stop: int

    @property
    def weight(self) -> torch.Tensor:
        return _local(self.parameter.detach())

    @property
    def gradient(self) -> torch.Tensor:
        if self.parameter.grad is None:
            return torch.zeros_like(self.weight)
        return _local(self.parameter.grad)


class ShardedModel:
    """The engine of forward_backward, and the pieces."""

    packs, compiled_losses = False, None

    def __init__(self, inner: Any, device: torch.device) -> None:
        self.inner = inner
        self.device = device
        self.world = dist.get_world_size()
        self.rank = dist.get_rank()

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Add one micro-batch's gradient; ranks are averaged, hence the factor."""
        (loss * self.world).backward()

    def sum_over_ranks(self, value: torch.Tensor) -> torch.Tensor:
        if self.world > 1:
            dist.all_reduce(value)
        return value

    def clear_gradients(self) -> None:
        self.inner.zero_grad(set_to_none=True)

    @cached_property
    def parameter_rows(self) -> list[ParameterRows]:
        found = []
        for name, parameter in self.inner.named_parameters():
            rows = -(-parameter.shape[0] // self.world)
            start = min(self.rank * rows, parameter.shape[0])
            found.append(ParameterRows(name, parameter, start, start + len(_local(parameter))))
        return found

    def gather(self) -> dict[str, torch.Tensor]:
        """Return the whole parameters on the CPU of rank 0 (nothing elsewhere), by name; all ranks call it."""
        state: dict[str, torch.Tensor] = {}
        for name, parameter in self.inner.named_parameters():
            whole = parameter.detach()
            whole = whole.full_tensor() if isinstance(whole, DTensor) else whole
            if self.rank == 0:
                whole = whole.cpu()
                padded = whole.untyped_storage().nbytes() > whole.nbytes  # where ranks have unequally many rows
                state[name] = whole.clone() if padded else whole
        return state


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def shard_model(network: Any, device: torch.device, precision: Precision) -> ShardedModel:
    """Split an fp32 model over the ranks of the group; bf16 computes in bf16 over fp32 weights."""
    world = dist.get_world_size()
    if world > 1 or precision == "bf16":
        mesh = init_device_mesh(device.type, (world,))
        half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        policy = half if precision == "bf16" else MixedPrecisionPolicy()
        blocks = next(module for module in network.modules() if isinstance(module, nn.ModuleList))
        for block in (*blocks, network):
            fully_shard(block, mesh=mesh, mp_policy=policy)
    return ShardedModel(network.to(device), device)
