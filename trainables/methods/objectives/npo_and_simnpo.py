"""Preference losses on the forget rows: NPO, against the target model, and SimNPO, without a reference."""

from __future__ import annotations

import torch
from torch.nn import functional

from trainables.methods.objectives.base import ForwardOutput, Loss, Totals


def npo(beta: float) -> Loss:
    """Return NPO (Zhang et al., 2024, eq. 3): -(2/beta) mean_i logsigmoid(beta (S_i - S_i^0)), of sums over tokens."""

    def loss(output: ForwardOutput, totals: Totals) -> torch.Tensor:
        ratio = output.losses.sum(1) - output.reference
        return -(2 / beta) * functional.logsigmoid(beta * ratio).sum() / totals.rows

    return loss


def simnpo(beta: float, margin: float) -> Loss:
    """Return SimNPO (Fan et al., 2024, eq. 4): -(2/beta) mean_i logsigmoid(beta (S_i / n_i - margin))."""

    def loss(output: ForwardOutput, totals: Totals) -> torch.Tensor:
        mean = output.losses.sum(1) / output.counts
        return -(2 / beta) * functional.logsigmoid(beta * (mean - margin)).sum() / totals.rows

    return loss
