"""Rules of two gradients that look at every element: SAGO at signs, GU in the optimizer's own geometry."""

from __future__ import annotations

import torch

from trainables.methods.rectifiers import base
from trainables.methods.rectifiers.base import Outcome, Reduce, Shard
from trainables.methods.rectifiers.gru import AveragingRectifier


class SAGO(AveragingRectifier):
    """g_i <- g_r,i where g_u,i and g_r,i have opposite signs, else g_u,i (arXiv 2604.14808); ranks sum the record."""

    adds_retain = True

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Choose in place. Raises FloatingPointError where the retain gradient is not finite."""
        before = base.dot_products(gradient, self.average)
        counts = torch.zeros(2, dtype=torch.float64, device=before.device)  # in conflict, not zero
        for part, mean in zip(gradient, self.average, strict=True):
            for g, m in zip(base.split_chunks(part), base.split_chunks(mean), strict=True):
                signs = g.sign() * m.sign()
                conflict = signs < 0
                counts += torch.stack((conflict.sum(), signs.count_nonzero()))
                g.copy_(torch.where(conflict, m.to(g.dtype), g))
        after = base.dot_products(gradient, self.average)
        found = reduce(torch.cat((before, after, counts))).tolist()
        base.check_norm_finite(found[1])
        conflicts, elements = found[6:]
        return base.make_outcome(
            found[:3], found[3:6], rectified=conflicts > 0, conflict_share=conflicts / elements if elements else 0.0
        )


class GU(AveragingRectifier):
    """g <- g_r + g_u - <g_u, g_r>_H / <g_r, g_r>_H g_r with <a, b>_H = sum a_i b_i / h_i, in conflict or not.

    arXiv 2511.17100. h = sqrt(v) + eps with v Adam's second moments, so that Adam's step for the forget part changes
    the retain loss by nothing to first order (without its momentum). Without moments (SGD, and before the first step) h
    is 1. This is the rank-one variant of the authors' derivation; the bias correction of v is a factor that cancels.
    """

    adds_retain = True
    needs_metric = True

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Combine in place. Raises FloatingPointError where the retain gradient is not finite."""
        measured = torch.cat((base.dot_products(gradient, self.average), self._weighted(gradient)))
        dot, retain_square, square, in_metric, retain_in_metric = reduce(measured).tolist()
        base.check_norm_finite(retain_square)
        weight = 1 - in_metric / retain_in_metric if retain_in_metric > 0 else 1.0
        for part, mean in zip(gradient, self.average, strict=True):
            part.add_(mean.to(part.dtype), alpha=weight)
        after = reduce(base.dot_products(gradient, self.average)).tolist()
        return base.make_outcome(
            (dot, retain_square, square), after, coefficient=weight, rectified=dot < 0, conflict_share=float(dot < 0)
        )

    def _weighted(self, gradient: Shard) -> torch.Tensor:
        """Return <g_u, g_r>_H and <g_r, g_r>_H of this shard: (2,) in fp64."""
        if self.metric is None:
            return torch.stack([base.inner_product(shard, self.average) for shard in (gradient, self.average)])
        total = torch.zeros(2, dtype=torch.float64, device=gradient[0].device if gradient else None)
        for stretch in base.align_shards(gradient, self.average, self.metric.moments):
            for g, m, moment in zip(*map(base.split_chunks, stretch), strict=True):
                scaled = m / (moment.float().sqrt() + self.metric.eps)
                total += torch.stack((torch.dot(g.float(), scaled), torch.dot(m, scaled))).double()
        return total
