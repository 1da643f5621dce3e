"""Gradient rectified unlearning: what is done to the objective's gradient before the optimizer sees it.

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
    """What one rectification did. Norms are Euclidean, over all trainable parameters.

    `cos_before` and `cos_after` are against the moving average of the retain gradient; `coefficient` is what
    multiplied it; `clip_scale` is 1 where nothing was clipped. NaN where there is no moving average.
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
    """`needs_retain`: a retain pass comes first each step and its gradient is handed to `fold`."""

    needs_retain: bool

    def fold(self, retain: Shard) -> None: ...

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome: ...

    def state(self) -> list[torch.Tensor]: ...

    def restore(self, state: list[torch.Tensor]) -> None: ...


class Plain:
    """No rectification; with `tau`, gradient clipping alone (the paper's ablation "w/ GC")."""

    needs_retain = False

    def __init__(self, tau: float | None = None) -> None:
        self.tau = tau

    def fold(self, retain: Shard) -> None:
        raise AssertionError("a rectifier without retain gradient was given one")

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Clip to `tau` (eq. 10)."""
        norm = math.sqrt(float(reduce(inner(gradient, gradient))))
        scale = clip_scale(norm, self.tau)
        _scale(gradient, scale)
        return Outcome(grad_norm=norm, rectified_norm=norm * scale, clip_scale=scale)

    def state(self) -> list[torch.Tensor]:
        return []

    def restore(self, state: list[torch.Tensor]) -> None:
        """Nothing lasts from step to step."""


class GRU:
    """Algorithm 1 of the paper.

    m <- (1 - gamma) m + gamma g_r with m = 0 at the start (eq. 9, no bias correction; gamma None keeps g_r alone),
    g <- g_u - min(<g_u, m>, 0) / ||m||^2 m (eq. 5), then the norm is clipped to `tau` (eq. 10).

    The moving average is this rank's shard in fp32, the only state that lasts.
    """

    needs_retain = True

    def __init__(self, gamma: float | None, tau: float | None) -> None:
        self.gamma = 1.0 if gamma is None else gamma
        self.tau = tau
        self.average: list[torch.Tensor] = []

    def fold(self, retain: Shard) -> None:
        """Take the retain gradient of this step into the moving average."""
        if not self.average:
            self.average = [torch.zeros_like(part, dtype=torch.float32) for part in retain]
        for mean, part in zip(self.average, retain, strict=True):
            mean.lerp_(part.to(mean.dtype), self.gamma)

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Rectify and clip in place."""
        dot, average_square, square = (float(x) for x in reduce(products(gradient, self.average)))
        norm, average_norm = math.sqrt(square), math.sqrt(average_square)
        conflict = dot < 0 and average_square > 0
        coefficient = -dot / average_square if conflict else 0.0
        cos = dot / (norm * average_norm) if norm > 0 and average_norm > 0 else 0.0
        if conflict and abs(1 + cos) < DEGENERATE:
            return Outcome(norm, 0.0, average_norm, dot, cos, 0.0, coefficient, 1.0, True, degenerate=True)
        rectified_norm = math.sqrt(max(square - dot * dot / average_square, 0.0)) if conflict else norm
        scale = clip_scale(rectified_norm, self.tau)
        for part, mean in zip(gradient, self.average, strict=True):
            if conflict:
                part.add_(mean.to(part.dtype), alpha=coefficient)
        _scale(gradient, scale)
        cos_after = 0.0 if conflict else cos
        return Outcome(
            norm, rectified_norm * scale, average_norm, dot, cos, cos_after, coefficient, scale, rectified=conflict
        )

    def state(self) -> list[torch.Tensor]:
        """This rank's shard of the moving average, for a checkpoint."""
        return self.average

    def restore(self, state: list[torch.Tensor]) -> None:
        """Copies, because a dot product's rounding depends on how memory is aligned."""
        self.average = [part.clone() for part in state]


def make(name: str, gamma: float | None, tau: float | None) -> Rectifier:
    """The rectifier of a configuration: none, clip, gru or pcgrad."""
    return GRU(gamma, tau) if name in ("gru", "pcgrad") else Plain(tau)


def clip_scale(norm: float, tau: float | None) -> float:
    """The factor that brings `norm` to at most `tau`."""
    return tau / norm if tau is not None and norm > tau else 1.0


def products(gradient: Shard, average: Shard) -> torch.Tensor:
    """<g, m>, <m, m>, <g, g> of this shard in one pass over both: (3,) in fp64, summed chunk by chunk."""
    total = torch.zeros(3, dtype=torch.float64, device=gradient[0].device if gradient else None)
    for part, mean in zip(gradient, average, strict=True):
        for g, m in zip(_chunks(part), _chunks(mean), strict=True):
            g = g.to(m.dtype)
            total += torch.stack((torch.dot(g, m), torch.dot(m, m), torch.dot(g, g))).double()
    return total


def inner(a: Shard, b: Shard) -> torch.Tensor:
    """<a, b> of this shard: () in fp64."""
    total = torch.zeros((), dtype=torch.float64, device=a[0].device if a else None)
    for x, y in zip(a, b, strict=True):
        for p, q in zip(_chunks(x), _chunks(y), strict=True):
            total += torch.dot(p.float(), q.float()).double()
    return total


def _chunks(part: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return part.reshape(-1).split(CUDA_CHUNK if part.is_cuda else CHUNK)


def _scale(gradient: Shard, scale: float) -> None:
    if scale != 1.0:
        for part in gradient:
            part.mul_(scale)
