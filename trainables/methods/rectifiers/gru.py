"""Gradient rectified unlearning: a gradient in conflict with the retain gradient is projected onto its normal plane."""

from __future__ import annotations

import math

from trainables.methods.rectifiers import base
from trainables.methods.rectifiers.base import Averaging, Outcome, Reduce, Shard


class GRU(Averaging):
    """Algorithm 1 of the paper.

    g <- g_u - min(<g_u, m>, 0) / ||m||^2 m (eq. 5) with the moving average m, then the norm is clipped to `tau`
    (eq. 10).
    """

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Rectify and clip in place; leave a degenerate gradient as it is, for its step is skipped.

        Raises FloatingPointError where the moving average is not finite: no conflict would ever show again.
        """
        dot, average_square, square = (float(x) for x in reduce(base.products(gradient, self.average)))
        if not math.isfinite(average_square):
            raise FloatingPointError(f"squared norm of the averaged retain gradient is {average_square}")
        norm, average_norm = math.sqrt(square), math.sqrt(average_square)
        conflict = dot < 0 and average_square > 0
        coefficient = -dot / average_square if conflict else 0.0
        cos = dot / (norm * average_norm) if norm > 0 and average_norm > 0 else 0.0
        if conflict and abs(1 + cos) < base.DEGENERATE:
            return Outcome(norm, 0.0, average_norm, dot, cos, 0.0, coefficient, rectified=True, degenerate=True)
        rectified_norm = math.sqrt(max(square - dot * dot / average_square, 0.0)) if conflict else norm
        scale = base.clip_scale(rectified_norm, self.tau)
        for part, mean in zip(gradient, self.average, strict=True):
            if conflict:
                part.add_(mean.to(part.dtype), alpha=coefficient)
            if scale != 1.0:
                part.mul_(scale)
        cos_after = cos
        if conflict:  # measured, so that a write that is lost shows
            lengths = rectified_norm * scale * average_norm
            cos_after = float(reduce(base.inner(gradient, self.average))) / lengths if lengths > 0 else 0.0
        return Outcome(
            norm, rectified_norm * scale, average_norm, dot, cos, cos_after, coefficient, scale, rectified=conflict
        )


class AGEM(GRU):
    """Projection onto the normal plane of this step's retain gradient (A-GEM, Chaudhry et al., 2019).

    GRU without moving average and clipping.
    """
