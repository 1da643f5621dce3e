"""Gradient ascent on the forget rows, plain (GA) and with weighted tokens (WGA)."""

from __future__ import annotations

import torch

from trainables.methods.objectives.base import Loss, Pass, Totals, nll


def ascent(seen: Pass, totals: Totals) -> torch.Tensor:
    """Gradient ascent (GA): -NLL."""
    return -nll(seen, totals)


def weighted_ascent(beta: float) -> Loss:
    """WGA (Wang et al., 2025, "Rethinking LLM unlearning objectives"): -mean_t w_t l_t, w_t = p_t^beta detached."""

    def loss(seen: Pass, totals: Totals) -> torch.Tensor:
        weights = torch.exp(-beta * seen.losses.detach())
        return -(weights * seen.losses).sum() / totals.tokens

    return loss
