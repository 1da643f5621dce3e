"""Preference losses on the forget rows: NPO, against the target model, and SimNPO, without a reference."""

from __future__ import annotations

import torch
from torch.nn import functional

from trainables.methods.objectives.base import Loss, Pass, Totals


def npo(beta: float) -> Loss:
    """NPO (Zhang et al., 2024, eq. 3): -(2/beta) mean_i logsigmoid(beta (S_i - S_i^0)); sums over tokens, not means."""

    def loss(seen: Pass, totals: Totals) -> torch.Tensor:
        if seen.reference is None:
            raise ValueError("NPO needs the target model's log-likelihoods")
        ratio = seen.losses.sum(1) - seen.reference
        return -(2 / beta) * functional.logsigmoid(beta * ratio).sum() / totals.rows

    return loss


def simnpo(beta: float, margin: float) -> Loss:
    """SimNPO (Fan et al., 2024, eq. 4): -(2/beta) mean_i logsigmoid(beta (S_i / n_i - margin)), without a reference."""

    def loss(seen: Pass, totals: Totals) -> torch.Tensor:
        mean = seen.losses.sum(1) / seen.counts
        return -(2 / beta) * functional.logsigmoid(beta * (mean - margin)).sum() / totals.rows

    return loss
