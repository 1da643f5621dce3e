"""Unlearning objectives: each a sum of terms over one side of the data.

A term gets the per-token losses of one micro-batch and the totals of the whole effective batch, over all ranks and
micro-batches, and returns its share: the shares of all micro-batches add up to the loss of the effective batch,
so that the split into micro-batches and ranks changes nothing.

Notation: l_t = -log p(y_t | y_<t, x) on label positions (0 elsewhere), S_i = sum of l_t over row i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from trainables.config import Objective as Settings

Side = Literal["forget", "retain"]


@dataclass(frozen=True)
class Totals:
    """Size of the effective batch of one side: label tokens and rows."""

    tokens: int
    rows: int


@dataclass(frozen=True)
class Term:
    """One summand. `loss`: token losses (B, T), reference sums (B,) or None, totals -> scalar."""

    side: Side
    loss: Callable[[torch.Tensor, torch.Tensor | None, Totals], torch.Tensor]


@dataclass(frozen=True)
class Objective:
    """What is minimised. `needs_reference`: the target's S_i of every forget row are computed before the first step."""

    terms: tuple[Term, ...]
    needs_reference: bool = False

    @property
    def needs_retain(self) -> bool:
        return any(term.side == "retain" for term in self.terms)


def nll(losses: torch.Tensor, reference: torch.Tensor | None, totals: Totals) -> torch.Tensor:
    """Mean negative log-likelihood of a label token, over the whole effective batch."""
    return losses.sum() / totals.tokens


def ascent(losses: torch.Tensor, reference: torch.Tensor | None, totals: Totals) -> torch.Tensor:
    """Gradient ascent (GA): -NLL."""
    return -nll(losses, reference, totals)


def npo(beta: float) -> Callable[[torch.Tensor, torch.Tensor | None, Totals], torch.Tensor]:
    """Negative preference optimisation (Zhang et al., 2024, eq. 3): -(2/beta) mean_i logsigmoid(beta (S_i - S_i^0)).

    Sums over tokens, not means; S_i^0 is the target model's.
    """

    def loss(losses: torch.Tensor, reference: torch.Tensor | None, totals: Totals) -> torch.Tensor:
        if reference is None:
            raise ValueError("NPO needs the target model's log-likelihoods")
        ratio = losses.sum(1) - reference
        return -(2 / beta) * functional.logsigmoid(beta * ratio).sum() / totals.rows

    return loss


def make(method: str, settings: Settings) -> Objective:
    """The objective of a method: ga, gd, npo; `nll` is ordinary fine-tuning on the forget side."""
    match method:
        case "nll":
            return Objective((Term("forget", nll),))
        case "ga":
            return Objective((Term("forget", ascent),))
        case "gd":
            return Objective((Term("forget", ascent), Term("retain", nll)))
        case "npo":
            return Objective((Term("forget", npo(settings.beta)),), needs_reference=True)
    raise ValueError(f"unknown method '{method}'")
