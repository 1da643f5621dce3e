"""The interface of a rectifier, and the products that rectifiers are made of.

Everything works in place on this rank's shard of the gradient, a list of flat tensors, with one global dot product
over all trainable parameters. Only `Reduce` knows that there are other ranks.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Protocol

import torch

Shard = Sequence[torch.Tensor]
Reduce = Callable[[torch.Tensor], torch.Tensor]
"""Sums a small fp64 tensor over the ranks that hold different shards (identity where the gradient is replicated)."""

CPU_CHUNK_ELEMENTS = 1 << 16
"""Elements of one fp32 dot product on the CPU; the sums are added in fp64. Error 2e-7 (7e-6 for 2^20)."""
CUDA_CHUNK_ELEMENTS = 1 << 24
"""cuBLAS sums pairwise, so a chunk may be large there, and kernels are few."""
DEGENERATE_TOLERANCE = 1e-6
"""|1 + cos| under this is the paper's degenerate configuration (Theorem 1a): the step is skipped."""


class TensorSegments(NamedTuple):
    """Which elements of a shard belong to which of the model's trained tensors, on every rank so many.

    `cuts`: of each part of the shard (tensor's number, start, end), padding left out.
    """

    tensors: int
    cuts: list[list[tuple[int, int, int]]]


class AdamSecondMoments(NamedTuple):
    """Adam's second moments of this rank's shard, as many elements in other parts, and its eps."""

    moments: list[torch.Tensor]
    eps: float


@dataclass(frozen=True)
class Outcome:
    """The record of one rectification. Norms are Euclidean, over all trainable parameters.

    `cos_before` and `cos_after` are against the moving average of the retain gradient, NaN where there is none; after
    `decide`, which writes nothing, `cos_after` is what follows from the products, after `apply` it is measured.
    `coefficient` is what multiplied the average; `clip_scale` is 1 where nothing was clipped. `rectified`: there was a
    conflict, of a rule by tensor in at least one; `conflict_share`: in what share of tensors (SAGO: of elements).
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
    conflict_share: float = math.nan


class GradientMixture(NamedTuple):
    """A rectified gradient as forget * g + retain * m, and its record."""

    forget: float
    retain: float
    outcome: Outcome


class Rectifier(Protocol):
    """The part that the training loop calls; a published one is made with `gamma` and `tau`, in this order."""

    needs_retain: bool = False
    """A retain pass comes first each step, and its gradient is handed to `take_retain_gradient`."""
    adds_retain: bool = False
    """The result holds the retain gradient, so that an objective with retain terms would count them twice."""
    parts: int = 1
    """The retain pass is taken in so many, each on a part of the rows: `take_retain_gradient` is called for each."""
    by_tensor: bool = False
    """It decides for each tensor, and finds those of the shard in `segments`."""
    segments: TensorSegments | None = None
    needs_metric: bool = False
    """It works in the metric of Adam, which it finds in `metric`."""
    metric: AdamSecondMoments | None = None

    combines: bool = False
    """The result is a combination of the gradient and `average`, which `decide` finds from their three products."""
    average: Shard = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a rule that overrides `apply` alone be applied, whatever its base class combines."""
        super().__init_subclass__(**options)
        if "decide" in vars(cls) or "apply" in vars(cls):
            cls.combines = "decide" in vars(cls)

    def take_retain_gradient(self, retain: Shard) -> None:
        """Take the retain gradient of this step."""

    def decide(self, dot: float, average_square: float, square: float) -> GradientMixture:
        """Return what to do with a gradient, from <g, m>, ||m||^2 and ||g||^2 over all parameters.

        Raises FloatingPointError if the average is not finite.
        """
        raise NotImplementedError

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Change the objective's gradient in place. Raise FloatingPointError if a gradient is not finite."""
        ...

    def state(self) -> list[torch.Tensor]:
        """Return this rank's shard of what lasts from step to step, for a checkpoint."""
        return []

    def restore(self, state: list[torch.Tensor]) -> None:
        """Take what a checkpoint holds."""


def find_triton_kernels(part: torch.Tensor) -> Any:
    if not part.is_cuda:
        return None
    from trainables.methods import triton_kernels

    return triton_kernels


def check_retain_norm_finite(square: float) -> None:
    """Raise FloatingPointError where the squared norm of the retain gradient is not finite."""
    if not math.isfinite(square):
        raise FloatingPointError(f"squared norm of the retain gradient is {square}")


def make_outcome(
    before: Sequence[float], after: Sequence[float], conflicts: torch.Tensor | None = None, **more: Any
) -> Outcome:
    """Return the record of a step from `shard_dot_products` before and after it, over all ranks.

    `conflicts`: whether each of what the rule decides on was in conflict, boolean.
    """
    if conflicts is not None:
        more |= {"rectified": bool(conflicts.any()), "conflict_share": float(conflicts.double().mean())}
    cos_before, cos_after = (dot / math.sqrt(m * g) if m * g > 0 else 0.0 for dot, m, g in (before, after))
    norm, average_norm, rectified_norm = math.sqrt(before[2]), math.sqrt(before[1]), math.sqrt(after[2])
    return Outcome(norm, rectified_norm, average_norm, before[0], cos_before, cos_after, **more)


def shard_dot_products(gradient: Shard, average: Shard) -> torch.Tensor:
    """Return <g, m>, <m, m>, <g, g> of this shard: (3,) in fp64; a GPU reads both once."""
    if gradient and (kernels := find_triton_kernels(gradient[0])):
        total = torch.zeros(3, dtype=torch.float64, device=gradient[0].device)
        for part, mean in zip(gradient, average, strict=True):
            total += kernels.compute_inner_products(part.reshape(-1), mean.reshape(-1))
        return total
    inner = shard_inner_product
    return torch.stack([inner(gradient, average), inner(average, average), inner(gradient, gradient)])


def zip_shard_parts(*shards: Shard) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield views of the same stretch of each shard, flat; they hold as many elements in different parts."""
    ends = sorted({end for shard in shards for end in accumulate(part.numel() for part in shard)})

    def cut(shard: Shard) -> Iterator[torch.Tensor]:
        begin = 0
        for part in shard:
            inside = [end - begin for end in ends if begin < end <= begin + part.numel()]
            yield from part.view(-1).split([end - start for start, end in pairwise([0, *inside])])
            begin += part.numel()

    return zip(*map(cut, shards), strict=True)


def shard_inner_product(a: Shard, b: Shard) -> torch.Tensor:
    """Return <a, b> of this shard: () in fp64."""
    total = torch.zeros((), dtype=torch.float64, device=a[0].device if a else None)
    for x, y in zip(a, b, strict=True):
        for p, q in zip(split_chunks(x), split_chunks(y), strict=True):
            total += torch.dot(p.float(), q.float()).double()
    return total


def split_chunks(part: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return part.reshape(-1).split(CUDA_CHUNK_ELEMENTS if part.is_cuda else CPU_CHUNK_ELEMENTS)
