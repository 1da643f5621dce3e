"""The bisector of two gradients: NGDiff (arXiv 2410.22086) and MUNBa (arXiv 2411.15537)."""

from __future__ import annotations

import torch

from trainables.methods.rectifiers.base import DEGENERATE
from trainables.methods.rectifiers.two_gradients.base import TwoGradients, Weights, safe_quotient


class Bisector(TwoGradients):
    """g <- (g_u / ||g_u|| + g_r / ||g_r||) / sqrt(1 + cos), which is sqrt(2) long.

    This is the closed form of MUNBa's bargaining solution; NGDiff is the same without the root. Opposite gradients
    have no bisector: towards them the root stops at that of DEGENERATE.
    """

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        norm, retain_norm = square.sqrt(), retain_square.sqrt()
        root = (1 + safe_quotient(dot, norm * retain_norm)).clamp(min=DEGENERATE).sqrt()
        return safe_quotient(1 / root, norm), safe_quotient(1 / root, retain_norm)
