"""DPO with an answer like "I do not know" preferred to a forget row's own."""

from __future__ import annotations

import torch
from torch.nn import functional

from trainables.methods.objectives.base import ForwardOutput, Totals


def dpo(output: ForwardOutput, totals: Totals, beta: float) -> torch.Tensor:
    """Return DPO (Rafailov et al., 2023; as in TOFU) as open-unlearning scales it, of sums over tokens.

    -(2/beta) mean_i logsigmoid(beta ((S_i - S_i^0) - (S'_i - S'_i^0))), S' being that of the preferred answer.
    """
    own, other = output.losses.sum(1).chunk(2)
    ratio = own - other - output.reference
    return -(2 / beta) * functional.logsigmoid(beta * ratio).sum() / (totals.rows / 2)
