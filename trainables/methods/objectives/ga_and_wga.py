"""Gradient ascent on the forget rows, plain (GA) and with weighted tokens (WGA, SatImp), and unlikelihood (CE-U)."""

from __future__ import annotations

import torch
from torch.nn import functional

from trainables.inference.padded_batch import IGNORED_LABEL
from trainables.methods.objectives.base import ForwardOutput, Totals, nll


def gradient_ascent(output: ForwardOutput, totals: Totals) -> torch.Tensor:
    """Return the loss of gradient ascent (GA): -NLL."""
    return -nll(output, totals)


def weighted_ascent(output: ForwardOutput, totals: Totals, beta: float) -> torch.Tensor:
    """Return WGA (Wang et al., 2025, Rethinking LLM unlearning objectives): -mean_t w_t l_t, w_t = p_t^beta held."""
    weights = torch.exp(-beta * output.losses.detach())
    return -(weights * output.losses).sum() / totals.tokens


def saturated_ascent(output: ForwardOutput, totals: Totals, beta: float, beta2: float) -> torch.Tensor:
    """Return SatImp (Yang et al., 2025): -mean_t w_t l_t, w_t = p_t^beta (1 - p_t)^beta2 held."""
    held = output.losses.detach()
    weights = torch.exp(-beta * held) * (-torch.expm1(-held)) ** beta2
    return -(weights * output.losses).sum() / totals.tokens


def unlikelihood(output: ForwardOutput, totals: Totals) -> torch.Tensor:
    """Return CE-U (arXiv 2503.01224), without the first label of each row: the mean of -log(1 - p_t).

    Its gradient is that of the published -sum_v q_v log p_v, q being p held, without the true token and normalised; the
    value differs by q's entropy.
    """
    number = (output.labels != IGNORED_LABEL).cumsum(1).flatten()[output.places]  # of labels up to each position
    logits, true = output.logits.float(), output.next_labels[:, None]
    others = logits.scatter(1, true, -torch.inf).logsumexp(1)
    losses = functional.softplus(logits.gather(1, true)[:, 0] - others)
    return (losses * (number > 0)).sum() / max(1, totals.tokens - totals.rows)
