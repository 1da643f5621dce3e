"""Losses on forget rows: gradient ascent, plain and with weighted tokens, unlikelihood, preferences, flat logits.

Of these NPO is against the target model, SimNPO without a reference, DPO against another answer.
"""

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


def satimp(output: ForwardOutput, totals: Totals, beta: float, beta2: float) -> torch.Tensor:
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


def pdu_forget_loss(output: ForwardOutput, totals: Totals) -> torch.Tensor:
    """Return PDU's forget term: the mean of (max_v z - mean_v z)^2 at the answer's tokens, as its authors' code has it.

    These logits predict the tokens after them.
    """
    logits = output.logits.float()
    return (logits.amax(1) - logits.mean(1)).square().sum() / totals.tokens
