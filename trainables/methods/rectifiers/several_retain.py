"""Rectifiers against several retain gradients, each of a part of the step's retain rows: GEM and OrthoGrad."""

from abc import abstractmethod

import torch

from trainables.methods.rectifiers import base
from trainables.methods.rectifiers.base import Outcome, Rectifier, Reduce, Shard


class SeveralRetainRectifier(Rectifier):
    """Adds a combination of the retain gradients G = [g_1 ... g_K]: this rank's shards of them, in fp32.

    Every rank decides from one reduction, the fp64 products of all pairs. Nothing lasts from step to step.
    """

    needs_retain = True

    def __init__(self, gamma: None = None, tau: None = None, *, parts: int = 4) -> None:
        self.parts = parts
        self.retain: list[list[torch.Tensor]] = []

    def take_retain_gradient(self, retain: Shard) -> None:
        if len(self.retain) == self.parts:
            self.retain.clear()
        self.retain.append([part.to(torch.float32, copy=True) for part in retain])

    @abstractmethod
    def weights(self, gram: torch.Tensor, dots: torch.Tensor) -> torch.Tensor:
        """Return the weights of g_1 ... g_K: (K,), from G^T G (K, K) and G^T g_u (K,), in fp64."""

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Combine in place; leave a degenerate gradient, of which nothing remains, as it is: its step is skipped.

        Raises FloatingPointError where a retain gradient is not finite.
        """
        count = len(self.retain)
        rows, columns = torch.triu_indices(count + 1, count + 1)
        shards = [*self.retain, gradient]
        pairs = zip(rows.tolist(), columns.tolist(), strict=True)
        found = reduce(torch.stack([base.shard_inner_product(shards[i], shards[k]) for i, k in pairs])).cpu()
        gram = torch.zeros(count + 1, count + 1, dtype=torch.float64)
        gram[rows, columns] = gram[columns, rows] = found
        base.check_retain_norm_finite(float(gram[:count, :count].sum()))
        square, dots = float(gram[count, count]), gram[:count, count]
        before = (float(dots.mean()), float(gram[:count, :count].mean()), square)
        weights = self.weights(gram[:count, :count], dots) if found.isfinite().all() else torch.zeros_like(dots)
        mixed = torch.cat((weights, torch.ones(1, dtype=torch.float64)))
        if float(mixed @ gram @ mixed) < base.DEGENERATE_TOLERANCE * square:
            return base.make_outcome(before, (0.0, before[1], 0.0), rectified=True, degenerate=True)
        for weight, retain in zip(weights.tolist(), self.retain, strict=True):
            for part, other in zip(gradient, retain, strict=True) if weight else ():
                part.add_(other.to(part.dtype), alpha=weight)
        *after, length = reduce(torch.stack([base.shard_inner_product(gradient, shard) for shard in shards])).tolist()
        return base.make_outcome(before, (sum(after) / count, before[1], length), dots < 0)


class GEM(SeveralRetainRectifier):
    """The nearest gradient in conflict with none of them (Lopez-Paz and Ranzato, 2017, without its margin).

    g <- g_u + G v with the v >= 0 that minimises 1/2 v^T G^T G v + (G^T g_u)^T v. Of one part it is A-GEM.
    """

    def weights(self, gram: torch.Tensor, dots: torch.Tensor) -> torch.Tensor:
        from scipy.optimize import nnls  # a quarter of a second of every other trial

        lengths = gram.diagonal().sqrt()
        if not lengths.any():
            return torch.zeros_like(dots)
        unit = torch.where(lengths > 0, 1 / lengths, 0)  # a short gradient's direction counts as any other's
        values, axes = torch.linalg.eigh(unit[:, None] * gram * unit)
        kept = values > base.DEGENERATE_TOLERANCE * values.max()
        root = values[kept].sqrt()
        factor, target = root[:, None] * axes[:, kept].T * (lengths > 0), -(axes[:, kept].T @ (unit * dots)) / root
        return unit * torch.from_numpy(nnls(factor.numpy(), target.numpy())[0])


class OrthoGrad(SeveralRetainRectifier):
    """The forget gradient without its part in the span of G, conflict or not, and the mean of G (arXiv 2503.02312).

    With the raw gradients, on the whole vector, as the paper states it; its code has Adam's directions and tensors.
    """

    adds_retain = True

    def weights(self, gram: torch.Tensor, dots: torch.Tensor) -> torch.Tensor:
        return 1 / len(dots) - torch.linalg.pinv(gram, rtol=base.DEGENERATE_TOLERANCE, hermitian=True) @ dots
