"""RMU: hidden states of one layer are steered to a random direction on forget rows, and held on retain rows."""

from __future__ import annotations

from functools import partial

import torch

from trainables.inference.scoring import IGNORED
from trainables.methods.objectives.base import Loss, Objective, Pass, Term, Totals
from trainables.methods.presets import Constants


def steer(steering: float, reduction: str, seed: int) -> Loss:
    """RMU's forget term (Li et al., 2024, eq. 1): ||h - c u||^2, u uniform in [0, 1)^D, normalised, fixed by seed."""

    def loss(seen: Pass, totals: Totals) -> torch.Tensor:
        if seen.hidden is None:
            raise ValueError("RMU needs hidden states")
        generator = torch.Generator().manual_seed(seed)
        control = torch.rand(seen.hidden.shape[-1], generator=generator)
        control = (steering * control / control.norm()).to(seen.hidden)
        return _squared((seen.hidden - control).float(), seen, totals, reduction)

    return loss


def keep(alpha: float, reduction: str) -> Loss:
    """RMU's retain term (eq. 2): alpha ||h - h^0||^2."""

    def loss(seen: Pass, totals: Totals) -> torch.Tensor:
        if seen.hidden is None or seen.frozen_hidden is None:
            raise ValueError("RMU needs hidden states of both models")
        return alpha * _squared((seen.hidden - seen.frozen_hidden).float(), seen, totals, reduction)

    return loss


def _squared(difference: torch.Tensor, seen: Pass, totals: Totals, reduction: str) -> torch.Tensor:
    """Mean over D, then over all positions, padding included, or over a row's label tokens and then rows."""
    square = difference.pow(2).mean(-1)
    if reduction == "all_positions":
        return square.sum() / (totals.rows * square.shape[1])
    labelled = seen.labels != IGNORED
    return ((square * labelled).sum(1) / labelled.sum(1)).sum() / totals.rows


def make(c: Constants, seed: int) -> Objective:
    """Return RMU's two terms at the outputs of one layer; neither reads logits."""
    width = "batch" if c.rmu_reduction == "all_positions" else None
    term = partial(Term, layer=c.layer, width=width, logits="none")
    forget = term("forget", steer(c.steering, c.rmu_reduction, seed))
    return Objective((forget, term("retain", keep(c.alpha, c.rmu_reduction), frozen=True)))
