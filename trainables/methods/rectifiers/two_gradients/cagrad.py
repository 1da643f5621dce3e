"""CAGrad (Liu et al., 2021): near the mean of both gradients, the step that serves the worse-off one best."""

from __future__ import annotations

import torch

from trainables.methods.rectifiers.base import DEGENERATE
from trainables.methods.rectifiers.two_gradients.base import Scope, TwoGradients, Weights, safe_quotient


class CAGrad(TwoGradients):
    """g <- (g_0 + kappa ||g_0|| g_x / ||g_x||) / (1 + kappa), g_0 the mean and g_x = x g_u + (1 - x) g_r.

    x in [0, 1] minimises <g_x, g_0> + kappa ||g_0|| ||g_x||, a convex function of it: with g_x's part along g_u - g_r
    and what is across it, its minimum has a closed form. kappa 0.5 is the authors'.
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
        length = (parts + 2 * x * (1 - x) * dot).clamp(min=DEGENERATE * parts).sqrt()
        scale = safe_quotient(radius, length)
        return (0.5 + scale * x) / (1 + self.kappa), (0.5 + scale * (1 - x)) / (1 + self.kappa)
