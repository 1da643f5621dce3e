"""The rules that combine two gradients: g <- a g_u + b g_r, with a and b from the two norms and the dot product.

g_u is the gradient of the forget terms alone, to be descended; g_r is the retain gradient of this step or its moving
average, and the rule puts it back into the result. They conflict where <g_u, g_r> < 0. `forget_coefficient` weighs g_u.
Two rules look at every element instead: SAGO at signs, GU in the optimizer's own geometry.
"""

import math
from abc import abstractmethod
from typing import Literal

import torch

from trainables.methods.rectifiers import base
from trainables.methods.rectifiers.base import DEGENERATE_TOLERANCE, GradientMixture, Outcome, Reduce, Shard
from trainables.methods.rectifiers.gru import MovingAverageRectifier

Scope = Literal["global", "tensor"]
Weights = tuple[torch.Tensor, torch.Tensor]
"""a and b: of the forget gradient and of the retain gradient."""


class TwoGradients(MovingAverageRectifier):
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

    def decide(self, dot: float, average_square: float, square: float) -> GradientMixture:
        """Return both weights of the whole gradient; the step of one whose two parts cancel is skipped."""
        before = (dot, average_square, square)
        table = torch.tensor([before], dtype=torch.float64)
        a, b, whole = self._weigh(table)
        if whole is None:
            found = base.make_outcome(before, (0.0, average_square, 0.0), rectified=True, degenerate=True)
            return GradientMixture(1.0, 0.0, found)
        forget, retain = float(a), float(b)
        after = (forget * dot + retain * average_square, average_square, whole)
        found = base.make_outcome(before, after, table[:, 0] < 0, coefficient=retain)
        return GradientMixture(forget, retain, found)

    def _weigh(self, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float | None]:
        """Return a, b, and ||a g_u + b g_r||^2, None if the parts cancel; `table`: <g_u, g_r>, ||g_r||^2, ||g_u||^2."""
        dot, retain_square, square = table.unbind(1)
        base.check_retain_norm_finite(float(retain_square.sum()))
        a, b = self.weights(square, retain_square, dot)
        parts = a * a * square + b * b * retain_square
        whole, apart = float((parts + 2 * a * b * dot).sum()), float(parts.sum())
        return a, b, None if whole < base.DEGENERATE_TOLERANCE * apart else whole

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
            table[number] += base.shard_dot_products([g], [m])
        table = reduce(table).cpu()
        before = table.sum(0).tolist()
        a, b, whole = self._weigh(table)
        if whole is None:
            return base.make_outcome(before, (0.0, before[1], 0.0), rectified=True, degenerate=True)
        for number, g, m in pieces:
            g.mul_(float(a[number])).add_(m.to(g.dtype), alpha=float(b[number]))
        # measured, so that a write that is lost shows
        after = reduce(base.shard_dot_products(gradient, self.average)).tolist()
        coefficient = float(b) if len(b) == 1 else math.nan
        return base.make_outcome(before, after, table[:, 0] < 0, coefficient=coefficient)


def safe_quotient(over: torch.Tensor, under: torch.Tensor) -> torch.Tensor:
    """Return over / under, 0 where `under` is 0: of a gradient that is zero nothing is taken."""
    return torch.where(under > 0, over / under, 0.0)


class PCGrad(TwoGradients):
    """One-sided PCGrad (Yu et al., 2020): the forget gradient is projected off the retain gradient, added whole.

    As unlearning papers have it (SAGO's baseline, arXiv 2604.14808); without conflict the sum of both.
    """

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        return torch.ones_like(dot), 1 - safe_quotient(dot.clamp(max=0), retain_square)


class SymmetricPCGrad(TwoGradients):
    """The original for two tasks, as a sum: its mean is half of it. Each is projected off the other's own gradient."""

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        conflict = dot.clamp(max=0)
        return 1 - safe_quotient(conflict, square), 1 - safe_quotient(conflict, retain_square)


class BLUR(TwoGradients):
    """Forgetting first (arXiv 2506.08164): the retain gradient loses its part along the forget gradient, always.

    g <- g_r + (1 - <g_u, g_r> / ||g_u||^2) g_u, whatever the sign; so <g, g_u> = ||g_u||^2.
    """

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        return 1 - safe_quotient(dot, square), torch.ones_like(dot)


class Bisector(TwoGradients):
    """g <- (g_u / ||g_u|| + g_r / ||g_r||) / sqrt(1 + cos), which is sqrt(2) long.

    This is the closed form of MUNBa's bargaining solution (arXiv 2411.15537); NGDiff (arXiv 2410.22086) is the same
    without the root. Opposite gradients have no bisector: towards them the root stops at that of DEGENERATE_TOLERANCE.
    """

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        norm, retain_norm = square.sqrt(), retain_square.sqrt()
        root = (1 + safe_quotient(dot, norm * retain_norm)).clamp(min=DEGENERATE_TOLERANCE).sqrt()
        return safe_quotient(1 / root, norm), safe_quotient(1 / root, retain_norm)


class HAMUQ(TwoGradients):
    """The steepest descent of the retain loss with <g, g_u> >= q on a ball of radius ||g_r||, so that ||g|| = ||g_r||.

    HAMU (arXiv 2606.02119). Where g_r gains q by itself it is the step; where not even the ball's end gains it, q /
    ||g_u||^2 g_u. q is `ratio` (the authors': 0.5), shared out over tensors by ||g_u|| ||g_r||. Both gradients are
    clipped to norm 1 before, as the authors do. Written for plain SGD: an adaptive optimizer rescales what q means.
    """

    def __init__(
        self, gamma: float | None = None, tau: None = None, *, scope: Scope = "tensor", ratio: float = 0.5
    ) -> None:
        super().__init__(gamma, tau, scope=scope)
        self.ratio = ratio

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        scale, retain_scale = (1 / each.sum().sqrt().clamp(min=1) for each in (square, retain_square))
        square, retain_square, dot = square * scale**2, retain_square * retain_scale**2, dot * scale * retain_scale
        lengths = (square * retain_square).sqrt()
        a, b = self._least_harm(square, retain_square, dot, self.ratio * safe_quotient(lengths, lengths.sum()))
        return a * scale, b * retain_scale

    def _least_harm(
        self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor, gain: torch.Tensor
    ) -> Weights:
        """Return the weights of g_u, which is to gain `gain`, and of g_r, whose descent is to be the steepest."""
        across = retain_square - safe_quotient(dot * dot, square)
        across = torch.where(across > DEGENERATE_TOLERANCE * retain_square, across, 0.0)  # else it is rounding
        stretch = safe_quotient((retain_square - safe_quotient(gain * gain, square)).clamp(min=0), across).sqrt()
        direct = dot >= gain
        return torch.where(direct, 0.0, safe_quotient(gain - stretch * dot, square)), torch.where(direct, 1.0, stretch)


class HAMUU(HAMUQ):
    """The same with the roles exchanged: the most forgetting at a required gain of the retain loss."""

    def _least_harm(
        self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor, gain: torch.Tensor
    ) -> Weights:
        b, a = super()._least_harm(retain_square, square, dot, gain)
        return a, b


class MGDA(TwoGradients):
    """g <- x g_u + (1 - x) g_r, x in [0, 1], at its shortest (Desideri, 2012): it descends both or is zero."""

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        x = safe_quotient(retain_square - dot, square + retain_square - 2 * dot).clamp(0, 1)
        return x, 1 - x


class CAGrad(TwoGradients):
    """g <- (g_0 + kappa ||g_0|| g_x / ||g_x||) / (1 + kappa), g_0 the mean and g_x = x g_u + (1 - x) g_r.

    Liu et al., 2021: x in [0, 1] minimises <g_x, g_0> + kappa ||g_0|| ||g_x||, a convex function of it: with g_x's part
    along g_u - g_r and what is across it, its minimum has a closed form. kappa 0.5 is the authors'.
    """

    def __init__(
        self, gamma: float | None = None, tau: None = None, *, scope: Scope = "global", kappa: float = 0.5
    ) -> None:
        super().__init__(gamma, tau, scope=scope)
        self.kappa = kappa

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        radius = self.kappa * (square + retain_square + 2 * dot).clamp(min=0).sqrt() / 2
        apart = (square + retain_square - 2 * dot).clamp(min=0)  # ||g_u - g_r||^2
        across = (square * retain_square - dot * dot).clamp(min=0)  # ||g_x||^2 apart = along(x)^2 + across
        slope = safe_quotient((retain_square - square) / 2, radius * apart.sqrt()).clamp(-1, 1)
        along = slope * safe_quotient(across, 1 - slope * slope).sqrt()
        at_end = torch.where(retain_square > square, 1.0, 0.0)
        x = safe_quotient(along + retain_square - dot, apart).clamp(0, 1)
        x = torch.where(slope.abs() < 1, x, at_end)
        parts = x * x * square + (1 - x) ** 2 * retain_square
        length = (parts + 2 * x * (1 - x) * dot).clamp(min=DEGENERATE_TOLERANCE * parts).sqrt()
        scale = safe_quotient(radius, length)
        return (0.5 + scale * x) / (1 + self.kappa), (0.5 + scale * (1 - x)) / (1 + self.kappa)


class SAGO(MovingAverageRectifier):
    """g_i <- g_r,i where g_u,i and g_r,i have opposite signs, else g_u,i (arXiv 2604.14808); ranks sum the record."""

    adds_retain = True

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Choose in place. Raises FloatingPointError where the retain gradient is not finite."""
        before = base.shard_dot_products(gradient, self.average)
        counts = torch.zeros(2, dtype=torch.float64, device=before.device)  # in conflict, not zero
        for part, mean in zip(gradient, self.average, strict=True):
            for g, m in zip(base.split_chunks(part), base.split_chunks(mean), strict=True):
                signs = g.sign() * m.sign()
                conflict = signs < 0
                counts += torch.stack((conflict.sum(), signs.count_nonzero()))
                g.copy_(torch.where(conflict, m.to(g.dtype), g))
        after = base.shard_dot_products(gradient, self.average)
        found = reduce(torch.cat((before, after, counts))).tolist()
        base.check_retain_norm_finite(found[1])
        conflicts, elements = found[6:]
        share = conflicts / elements if elements else 0.0
        return base.make_outcome(found[:3], found[3:6], rectified=conflicts > 0, conflict_share=share)


class GU(MovingAverageRectifier):
    """g <- g_r + g_u - <g_u, g_r>_H / <g_r, g_r>_H g_r with <a, b>_H = sum a_i b_i / h_i, in conflict or not.

    arXiv 2511.17100. h = sqrt(v) + eps with v Adam's second moments, so that Adam's step for the forget part changes
    the retain loss by nothing to first order (without its momentum). Without moments (SGD, and before the first step) h
    is 1. This is the rank-one variant of the authors' derivation; the bias correction of v is a factor that cancels.
    """

    adds_retain = True
    needs_metric = True

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Combine in place. Raises FloatingPointError where the retain gradient is not finite."""
        plain = base.shard_dot_products(gradient, self.average)
        weighted = plain[:2]  # <g_u, g_r>_H and <g_r, g_r>_H
        if self.metric is not None:
            weighted = torch.zeros(2, dtype=torch.float64, device=plain.device)
            for stretch in base.zip_shard_parts(gradient, self.average, self.metric.moments):
                for g, m, moment in zip(*map(base.split_chunks, stretch), strict=True):
                    scaled = m / (moment.float().sqrt() + self.metric.eps)
                    weighted += torch.stack((torch.dot(g.float(), scaled), torch.dot(m, scaled))).double()
        measured = torch.cat((plain, weighted))
        dot, retain_square, square, in_metric, retain_in_metric = reduce(measured).tolist()
        base.check_retain_norm_finite(retain_square)
        weight = 1 - in_metric / retain_in_metric if retain_in_metric > 0 else 1.0
        for part, mean in zip(gradient, self.average, strict=True):
            part.add_(mean.to(part.dtype), alpha=weight)
        after = reduce(base.shard_dot_products(gradient, self.average)).tolist()
        before, conflict = (dot, retain_square, square), dot < 0
        return base.make_outcome(before, after, coefficient=weight, rectified=conflict, conflict_share=float(conflict))
