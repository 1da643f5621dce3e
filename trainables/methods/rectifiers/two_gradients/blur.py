"""BLUR (arXiv 2506.08164): forgetting first; the retain gradient loses its part along the forget gradient, always."""

from __future__ import annotations

import torch

from trainables.methods.rectifiers.two_gradients.base import TwoGradients, Weights, safe_quotient


class BLUR(TwoGradients):
    """g <- g_r + (1 - <g_u, g_r> / ||g_u||^2) g_u, whatever the sign; so <g, g_u> = ||g_u||^2."""

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        return 1 - safe_quotient(dot, square), torch.ones_like(dot)
