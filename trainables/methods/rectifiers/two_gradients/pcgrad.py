"""PCGrad (Yu et al., 2020): of gradients in conflict each loses its part along the other."""

from __future__ import annotations

import torch

from trainables.methods.rectifiers.two_gradients.base import TwoGradients, Weights, safe_quotient


class PCGrad(TwoGradients):
    """One-sided: the forget gradient is projected off the retain gradient, which is added whole.

    As unlearning papers have it (SAGO's baseline, arXiv 2604.14808); without conflict the sum of both.
    """

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        return torch.ones_like(dot), 1 - safe_quotient(dot.clamp(max=0), retain_square)


class SymmetricPCGrad(TwoGradients):
    """The original for two tasks, as a sum: its mean is half of it. Each is projected off the other's own gradient."""

    def weights(self, square: torch.Tensor, retain_square: torch.Tensor, dot: torch.Tensor) -> Weights:
        conflict = dot.clamp(max=0)
        return 1 - safe_quotient(conflict, square), 1 - safe_quotient(conflict, retain_square)
