"""The rules that combine two gradients: g <- a g_u + b g_r, with a and b from the two norms and the dot product.

g_u is the gradient of the forget terms alone, to be descended; g_r is the retain gradient of this step or its moving
average, and the rule puts it back into the result. They conflict where <g_u, g_r> < 0. `forget_coefficient` weighs g_u.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Literal

import torch

from trainables.methods.rectifiers import base
from trainables.methods.rectifiers.base import Combination, Outcome, Reduce, Shard
from trainables.methods.rectifiers.gru import AveragingRectifier

Scope = Literal["global", "tensor"]
Weights = tuple[torch.Tensor, torch.Tensor]
"""a and b: of the forget gradient and of the retain gradient."""


class TwoGradients(AveragingRectifier):
    """A rule on the whole gradient, or on each tensor of it for itself.

    Every rank decides from the same sums: three fp64 numbers, or three a tensor, in one reduction.
    """

    adds_retain = True

    def __init__(self, gamma: float | None = None, tau: None = None, *, scope: Scope = "global") -> None:
        super().__init__(gamma)
        self.by_tensor = scope == "tensor"
        self.combines = self.combines and not self.by_tensor

    @abstractmethod
    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        """Return a and b from ||g_u||^2, ||g_r||^2 and <g_u, g_r>: all (T,) in fp64, T tensors, or 1 for the whole."""

    def decide(self, dot: float, average_square: float, square: float) -> Combination:
        """Return both weights of the whole gradient; the step of one whose two parts cancel is skipped."""
        before = (dot, average_square, square)
        a, b, whole = self._weigh(torch.tensor([before], dtype=torch.float64))
        if whole is None:
            found = base.make_outcome(before, (0.0, average_square, 0.0), rectified=True, degenerate=True)
            return Combination(1.0, 0.0, found)
        forget, retain = float(a), float(b)
        found = base.make_outcome(
            before,
            (forget * dot + retain * average_square, average_square, whole),
            coefficient=retain,
            rectified=dot < 0,
            conflict_share=float(dot < 0),
        )
        return Combination(forget, retain, found)

    def _weigh(self, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float | None]:
        """Return a, b, and ||a g_u + b g_r||^2, None if the parts cancel; `table`: <g_u, g_r>, ||g_r||^2, ||g_u||^2."""
        dot, retain_square, square = table.unbind(1)
        base.check_norm_finite(float(retain_square.sum()))
        a, b = self.weights(square, retain_square, dot)
        parts = a * a * square + b * b * retain_square
        whole, apart = float((parts + 2 * a * b * dot).sum()), float(parts.sum())
        return a, b, None if whole < base.DEGENERATE * apart else whole

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Combine in place; leave a degenerate gradient, whose two parts cancel, as it is: its step is skipped.

        Raises FloatingPointError where the retain gradient is not finite, ValueError by tensor without `segments`.
        """
        whole = base.TensorSegments(1, [[(0, 0, part.numel())] for part in gradient])
        segments = self.segments if self.by_tensor else whole
        if segments is None:
            raise ValueError("a rule by tensor needs to know which elements of the shard belong to which tensor")
        pieces = [
            (number, part.view(-1)[start:end], mean.view(-1)[start:end])
            for part, mean, cuts in zip(gradient, self.average, segments.cuts, strict=True)
            for number, start, end in cuts
        ]
        table = torch.zeros(segments.tensors, 3, dtype=torch.float64, device=gradient[0].device if gradient else None)
        for number, g, m in pieces:
            table[number] += base.dot_products([g], [m])
        table = reduce(table).cpu()
        before, conflicts = table.sum(0).tolist(), table[:, 0] < 0
        a, b, whole = self._weigh(table)
        if whole is None:
            return base.make_outcome(before, (0.0, before[1], 0.0), rectified=True, degenerate=True)
        for number, g, m in pieces:
            g.mul_(float(a[number])).add_(m.to(g.dtype), alpha=float(b[number]))
        # measured, so that a write that is lost shows
        after = reduce(base.dot_products(gradient, self.average)).tolist()
        return base.make_outcome(
            before,
            after,
            coefficient=float(b) if len(b) == 1 else math.nan,
            rectified=bool(conflicts.any()),
            conflict_share=float(conflicts.double().mean()),
        )


def safe_quotient(over: torch.Tensor, under: torch.Tensor) -> torch.Tensor:
    """Return over / under, 0 where `under` is 0: of a gradient that is zero nothing is taken."""
    return torch.where(under > 0, over / under, 0.0)
