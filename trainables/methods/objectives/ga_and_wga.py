"""Gradient ascent on the forget rows, plain (GA) and with weighted tokens (WGA)."""

from __future__ import annotations

import torch

from trainables.methods.objectives.base import ForwardOutput, Loss, Totals, nll


def ascent(output: ForwardOutput, totals: Totals) -> torch.Tensor:
    """Return the loss of gradient ascent (GA): -NLL."""
    return -nll(output, totals)


def weighted_ascent(beta: float) -> Loss:
    """Return WGA (Wang et al., 2025, Rethinking LLM unlearning objectives): -mean_t w_t l_t, w_t = p_t^beta held."""

    def loss(output: ForwardOutput, totals: Totals) -> torch.Tensor:
        weights = torch.exp(-beta * output.losses.detach())
        return -(weights * output.losses).sum() / totals.tokens

    return loss
