"""Gradient rectified unlearning: a gradient in conflict with the retain gradient is projected onto its normal plane."""

from __future__ import annotations

import math
from dataclasses import replace

from trainables.methods.rectifiers import base
from trainables.methods.rectifiers.base import Averaging, Combination, Outcome, Reduce, Shard


class GRU(Averaging):
    """Algorithm 1 of the paper.

    g <- g_u - min(<g_u, m>, 0) / ||m||^2 m (eq. 5) with the moving average m, then the norm is clipped to `tau`
    (eq. 10).
    """

    def decide(self, dot: float, average_square: float, square: float) -> Combination:
        """Return how to rectify and clip; a degenerate gradient's step is skipped.

        Raises FloatingPointError where the moving average is not finite: no conflict would ever show again.
        """
        if not math.isfinite(average_square):
            raise FloatingPointError(f"squared norm of the averaged retain gradient is {average_square}")
        norm, average_norm = math.sqrt(square), math.sqrt(average_square)
        conflict = dot < 0 and average_square > 0
        coefficient = -dot / average_square if conflict else 0.0
        cos = dot / (norm * average_norm) if norm > 0 and average_norm > 0 else 0.0
        if conflict and abs(1 + cos) < base.DEGENERATE:
            found = Outcome(norm, 0.0, average_norm, dot, cos, 0.0, coefficient, rectified=True, degenerate=True)
            return Combination(1.0, 0.0, found)
        rectified_norm = math.sqrt(max(square - dot * dot / average_square, 0.0)) if conflict else norm
        scale = base.clip_scale(rectified_norm, self.tau)
        cos_after = 0.0 if conflict else cos
        found = Outcome(
            norm, rectified_norm * scale, average_norm, dot, cos, cos_after, coefficient, scale, rectified=conflict
        )
        return Combination(scale, scale * coefficient, found)

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Rectify and clip in place, as `decide` says; leave a degenerate gradient as it is."""
        found = self.decide(*reduce(base.products(gradient, self.average)).tolist()).outcome
        if found.degenerate:
            return found
        for part, mean in zip(gradient, self.average, strict=True):
            if found.rectified:
                part.add_(mean.to(part.dtype), alpha=found.coefficient)
            if found.clip_scale != 1.0:
                part.mul_(found.clip_scale)
        lengths = found.rectified_norm * found.average_norm
        if not found.rectified or not lengths > 0:
            return found
        # measured, so that a write that is lost shows
        return replace(found, cos_after=float(reduce(base.inner(gradient, self.average))) / lengths)


class AGEM(GRU):
    """Projection onto the normal plane of this step's retain gradient (A-GEM, Chaudhry et al., 2019).

    GRU without moving average and clipping.
    """
