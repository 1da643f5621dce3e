"""Task vectors: how one is rectified against the other forget points, and brought to length 1.

T = theta_s - theta_org for a batch s of the forget set; G: the gradient of the NLL on the other forget points at
theta_org. The paper's closed form for TRU ends in T where the constraint's solution needs G, and its constraint has
the sign the other way round (docs/reproduction.md); here T~ = T + max(-<T, G>, 0) / ||G||^2 G, so that <T~, G> >= 0:
subtracting T~ does not raise that NLL to first order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from trainables.config.settings import NormaliseUnit
from trainables.methods.rectifiers import base


@dataclass(frozen=True)
class VectorRectification:
    """Record of one rectification. Norms are Euclidean over all parameters; `cos` is NaN where a side is zero.

    `scales`: what each tensor of T + coefficient * G is multiplied by to come to length 1, 0 for a zero vector.
    """

    norm: float
    retain_norm: float
    dot: float
    cos: float
    coefficient: float
    rectified: bool
    rectified_norm: float
    scales: tuple[float, ...]


def compute_tensor_products(vector: Sequence[torch.Tensor], gradient: Sequence[torch.Tensor] | None) -> torch.Tensor:
    """Return <T, G>, ||G||^2, ||T||^2 of each tensor (this rank's part): (tensors, 3) in fp64; None is zero."""
    if gradient is None:
        squares = torch.stack([base.shard_inner_product([part], [part]) for part in vector])
        return torch.stack((torch.zeros_like(squares), torch.zeros_like(squares), squares), dim=1)
    # `base.shard_dot_products` takes what is projected first: here the vector
    return torch.stack([base.shard_dot_products([t], [g]) for t, g in zip(vector, gradient, strict=True)])


def decide_vector_rectification(found: torch.Tensor, normalise: NormaliseUnit) -> VectorRectification:
    """Return how to rectify, from the products of all ranks. A vector opposite to G becomes zero."""
    dots, retain, squares = found.double().cpu().unbind(1)
    dot, retain_square, square = (float(part.sum()) for part in (dots, retain, squares))
    norm, retain_norm = math.sqrt(square), math.sqrt(retain_square)
    cos = dot / (norm * retain_norm) if norm > 0 and retain_norm > 0 else math.nan
    conflict = dot < 0 and retain_square > 0
    coefficient = -dot / retain_square if conflict else 0.0
    left = (squares + 2 * coefficient * dots + coefficient**2 * retain).clamp(min=0)
    if conflict and abs(1 + cos) < base.DEGENERATE_TOLERANCE:
        left = torch.zeros_like(left)
    rectified_norm = math.sqrt(float(left.sum()))
    lengths = left.sqrt().tolist() if normalise == "per_tensor" else [rectified_norm] * len(left)
    scales = tuple(1 / length if length > 0 else 0.0 for length in lengths)
    return VectorRectification(norm, retain_norm, dot, cos, coefficient, conflict, rectified_norm, scales)
