"""RMU: hidden states of one layer are steered to a random direction on forget rows, and held on retain rows."""

from __future__ import annotations

from functools import partial

import torch

from trainables.inference.padded_batch import IGNORED_LABEL
from trainables.methods.method_constants import Constants
from trainables.methods.objectives.base import ForwardOutput, Objective, Term, Totals


def rmu_forget_loss(output: ForwardOutput, totals: Totals, steering: float, reduction: str, seed: int) -> torch.Tensor:
    """Return RMU's forget term (Li et al., 2024, eq. 1): ||h - c u||^2, u uniform in [0, 1)^D, normalised, by seed."""
    generator = torch.Generator().manual_seed(seed)
    control = torch.rand(output.hidden.shape[-1], generator=generator)
    control = (steering * control / control.norm()).to(output.hidden)
    return _squared((output.hidden - control).float(), output, totals, reduction)


def rmu_retain_loss(output: ForwardOutput, totals: Totals, alpha: float, reduction: str) -> torch.Tensor:
    """Return RMU's retain term (eq. 2): alpha ||h - h^0||^2."""
    return alpha * _squared((output.hidden - output.frozen_hidden).float(), output, totals, reduction)


def _squared(difference: torch.Tensor, output: ForwardOutput, totals: Totals, reduction: str) -> torch.Tensor:
    """Return the mean over D, then over all positions, padding included, or over a row's label tokens and then rows."""
    square = difference.pow(2).mean(-1)
    if reduction == "all_positions":
        return square.sum() / (totals.rows * square.shape[1])
    labelled = output.labels != IGNORED_LABEL
    return ((square * labelled).sum(1) / labelled.sum(1)).sum() / totals.rows


def rmu_objective(c: Constants, seed: int) -> Objective:
    """Return RMU's two terms at the outputs of one layer; neither reads logits."""
    width = "batch" if c.rmu_reduction == "all_positions" else None
    term = partial(Term, layer=c.layer, width=width, logits="none")
    forget = term("forget", partial(rmu_forget_loss, steering=c.steering, reduction=c.rmu_reduction, seed=seed))
    retain = term("retain", partial(rmu_retain_loss, alpha=c.alpha, reduction=c.rmu_reduction), frozen=True)
    return Objective((forget, retain))
