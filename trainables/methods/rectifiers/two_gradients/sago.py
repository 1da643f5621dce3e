"""SAGO (arXiv 2604.14808): element by element, whichever gradient does not harm the retain loss."""

from __future__ import annotations

import torch

from trainables.methods.rectifiers import base
from trainables.methods.rectifiers.base import Outcome, Reduce, Shard
from trainables.methods.rectifiers.gru import AveragingRectifier


class SAGO(AveragingRectifier):
    """g_i <- g_r,i where g_u,i and g_r,i have opposite signs, else g_u,i. Only the record is summed over ranks."""

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
            found[:3],
            found[3:6],
            rectified=conflicts > 0,
            conflict_share=conflicts / elements if elements else 0.0,
        )
