"""Preference losses: NPO, against the target model, SimNPO, without a reference, and DPO, against another answer."""

from __future__ import annotations

import torch
from torch.nn import functional

from trainables.inference.padded_batch import IGNORED_LABEL
from trainables.methods.objectives.base import ForwardOutput, Totals


def npo(output: ForwardOutput, totals: Totals, beta: float) -> torch.Tensor:
    """Return NPO (Zhang et al., 2024, eq. 3): -(2/beta) mean_i logsigmoid(beta (S_i - S_i^0)), of sums over tokens."""
    ratio = output.losses.sum(1) - output.reference
    return -(2 / beta) * functional.logsigmoid(beta * ratio).sum() / totals.rows


def simnpo(output: ForwardOutput, totals: Totals, beta: float, margin: float) -> torch.Tensor:
    """Return SimNPO (Fan et al., 2024, eq. 4): -(2/beta) mean_i logsigmoid(beta (S_i / n_i - margin))."""
    mean = output.losses.sum(1) / (output.labels[:, 1:] != IGNORED_LABEL).sum(1)
    return -(2 / beta) * functional.logsigmoid(beta * (mean - margin)).sum() / totals.rows


def dpo(output: ForwardOutput, totals: Totals, beta: float) -> torch.Tensor:
    """Return DPO (Rafailov et al., 2023; as in TOFU) as open-unlearning scales it, of sums over tokens.

    -(2/beta) mean_i logsigmoid(beta ((S_i - S_i^0) - (S'_i - S'_i^0))), S' being that of the preferred answer.
    """
    own, other = output.losses.sum(1).chunk(2)
    ratio = own - other - output.reference
    return -(2 / beta) * functional.logsigmoid(beta * ratio).sum() / (totals.rows / 2)
