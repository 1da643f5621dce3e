"""MGDA (Desideri, 2012): the shortest vector between the two gradients, which descends both or is zero."""

from __future__ import annotations

import torch

from trainables.methods.rectifiers.two_gradients.base import TwoGradients, Weights, safe_quotient


class MGDA(TwoGradients):
    """g <- x g_u + (1 - x) g_r with the x in [0, 1] that makes it shortest."""

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        x = safe_quotient(retain_square - dot, square + retain_square - 2 * dot).clamp(0, 1)
        return x, 1 - x
