"""The interface of a rectifier, and the products and scales that rectifiers are made of.

Everything works in place on this rank's shard of the gradient, a list of flat tensors, with one global dot product
over all trainable parameters. Only `Reduce` knows that there are other ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

Shard = Sequence[torch.Tensor]
Reduce = Callable[[torch.Tensor], torch.Tensor]
"""Sums a small fp64 tensor over the ranks that hold different shards (identity where the gradient is replicated)."""

CHUNK = 1 << 16
"""Elements of one fp32 dot product on the CPU; the sums are added in fp64. Error 2e-7 (7e-6 for 2^20)."""
CUDA_CHUNK = 1 << 24
"""cuBLAS sums pairwise, so a chunk may be large there, and kernels are few."""
DEGENERATE = 1e-6
"""|1 + cos| under this is the paper's degenerate configuration (Theorem 1a): the step is skipped."""


@dataclass(frozen=True)
class Outcome:
    """The record of one rectification. Norms are Euclidean, over all trainable parameters.

    `cos_before` and `cos_after`, both measured, are against the moving average of the retain gradient; `coefficient` is
    what multiplied it; `clip_scale` is 1 where nothing was clipped. NaN where there is no moving average.
    """

    grad_norm: float
    rectified_norm: float
    average_norm: float = math.nan
    dot: float = math.nan
    cos_before: float = math.nan
    cos_after: float = math.nan
    coefficient: float = 0.0
    clip_scale: float = 1.0
    rectified: bool = False
    degenerate: bool = False


class Rectifier(Protocol):
    """The part that the training loop calls; a published one is made with `gamma` and `tau`, in this order."""

    needs_retain: bool = False
    """A retain pass comes first each step, and its gradient is handed to `update_average`."""

    def update_average(self, retain: Shard) -> None:
        """Take the retain gradient of this step."""

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Change the objective's gradient in place. Raise FloatingPointError if a gradient is not finite."""
        ...

    def state(self) -> list[torch.Tensor]:
        """Return this rank's shard of what lasts from step to step, for a checkpoint."""
        return []

    def restore(self, state: list[torch.Tensor]) -> None:
        """Take what a checkpoint holds."""


def clip_scale(norm: float, tau: float | None) -> float:
    """Return the factor that brings `norm` to at most `tau`."""
    return tau / norm if tau is not None and norm > tau else 1.0


def products(gradient: Shard, average: Shard) -> torch.Tensor:
    """Return <g, m>, <m, m>, <g, g> of this shard in one pass over both: (3,) in fp64, summed chunk by chunk."""
    total = torch.zeros(3, dtype=torch.float64, device=gradient[0].device if gradient else None)
    for part, mean in zip(gradient, average, strict=True):
        for g, m in zip(_chunks(part), _chunks(mean), strict=True):
            g = g.to(m.dtype)
            total += torch.stack((torch.dot(g, m), torch.dot(m, m), torch.dot(g, g))).double()
    return total


def inner(a: Shard, b: Shard) -> torch.Tensor:
    """Return <a, b> of this shard: () in fp64."""
    total = torch.zeros((), dtype=torch.float64, device=a[0].device if a else None)
    for x, y in zip(a, b, strict=True):
        for p, q in zip(_chunks(x), _chunks(y), strict=True):
            total += torch.dot(p.float(), q.float()).double()
    return total


def _chunks(part: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return part.reshape(-1).split(CUDA_CHUNK if part.is_cuda else CHUNK)
