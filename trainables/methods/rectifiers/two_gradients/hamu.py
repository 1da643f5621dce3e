"""HAMU (arXiv 2606.02119): the least harm to one goal at a required gain of the other, tensor by tensor."""

from __future__ import annotations

import torch

from trainables.methods.rectifiers.base import DEGENERATE
from trainables.methods.rectifiers.two_gradients.base import Scope, TwoGradients, Weights, safe_quotient


class HAMUQ(TwoGradients):
    """The steepest descent of the retain loss with <g, g_u> >= q on a ball of radius ||g_r||, so that ||g|| = ||g_r||.

    Where g_r gains q by itself it is the step. Where not even the ball's end gains it, the step is q / ||g_u||^2 g_u.
    q is `ratio` (the authors': 0.5), shared out over tensors by ||g_u|| ||g_r||. Both gradients are clipped to norm 1
    before, as the authors do. Written for plain SGD: an adaptive optimizer rescales what q means.
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
        across = torch.where(across > DEGENERATE * retain_square, across, 0.0)  # else it is rounding, not a direction
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
