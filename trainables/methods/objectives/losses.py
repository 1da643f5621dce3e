"""Losses of the published objectives: on forget rows alone, then terms beside the frozen target model.

On forget rows: gradient ascent, plain and with weighted tokens, unlikelihood, preferences, flat logits. Of these NPO is
against the target model, SimNPO without a reference, DPO against another answer. Beside the frozen model: KL to its
distributions on retain rows, UNDIAL, and RMU on hidden states.
"""

from functools import partial

import torch
from torch.nn import functional

from trainables.config.settings import KLReduction
from trainables.inference.padded_batch import IGNORED_LABEL
from trainables.methods.method_constants import TOFU_ROW_TOKENS, ObjectiveConstants
from trainables.methods.objectives.base import DataSide, ForwardOutput, Loss, Objective, Positions, Term, Totals, nll


def gradient_ascent(output: ForwardOutput, totals: Totals) -> torch.Tensor:
    """Return the loss of gradient ascent (GA): -NLL."""
    return -nll(output, totals)


def weighted_gradient_ascent(output: ForwardOutput, totals: Totals, beta: float) -> torch.Tensor:
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


def kl_from_frozen_model(output: ForwardOutput, totals: Totals, reduction: KLReduction) -> torch.Tensor:
    """Return KL(p^0 || p) over the vocabulary, averaged over the positions that `reduction` names.

    labels: positions that predict a label. attended: real tokens. all_positions: padding too, rows padded to the
    effective batch's longest (open-unlearning). all_positions_fixed_pad: padding too, rows padded to 500 (TOFU's code).
    """
    target = torch.log_softmax(output.frozen_logits.float(), -1)
    current = torch.log_softmax(output.logits.float(), -1)
    everywhere = totals.rows * output.labels.shape[1]
    count = {"labels": totals.tokens, "attended": totals.attended}.get(reduction, everywhere)
    return functional.kl_div(current, target, reduction="sum", log_target=True) / count


def make_term_reading_frozen_model(side: DataSide, loss: Loss, reduction: KLReduction) -> Term:
    """Return a term on both models' distributions, with the padding and positions that its reduction averages over."""
    width = {"all_positions": "batch", "all_positions_fixed_pad": TOFU_ROW_TOKENS}.get(reduction)
    logits: Positions = reduction if reduction in ("labels", "attended") else "all"
    return Term(side, loss, frozen=True, width=width, logits=logits)  # type: ignore[arg-type]


def undial(output: ForwardOutput, totals: Totals, beta: float, reduction: KLReduction) -> torch.Tensor:
    """Return UNDIAL (Dong et al., 2025): the mean of -sum_v q_v log p_v, q = softmax(z^0 - beta onehot(y)).

    The mean is over label positions, as in the paper. Other reductions are open-unlearning's: over all positions that
    predict anything, where one without a label has the logit of token V - 100 lowered (there -100 means no label).
    """
    chosen = output.next_labels
    target = output.frozen_logits.float()
    lowered = torch.full((len(chosen), 1), -beta, device=target.device)
    target = torch.softmax(target.scatter_add(1, chosen.remainder(target.shape[1])[:, None], lowered), 1)
    losses = functional.cross_entropy(output.logits.float(), target, reduction="none")
    if reduction in ("labels", "attended"):
        return losses.sum() / (totals.tokens if reduction == "labels" else totals.attended)
    rows, width = output.labels.shape  # the last position predicts nothing
    return losses.view(rows, width)[:, :-1].sum() / (totals.rows * (width - 1))


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


def make_rmu_objective(c: ObjectiveConstants, seed: int) -> Objective:
    """Return RMU's two terms at the outputs of one layer; neither reads logits."""
    width = "batch" if c.rmu_reduction == "all_positions" else None
    term = partial(Term, layer=c.layer, width=width, logits="none")
    forget = term("forget", partial(rmu_forget_loss, steering=c.steering, reduction=c.rmu_reduction, seed=seed))
    retain = term("retain", partial(rmu_retain_loss, alpha=c.alpha, reduction=c.rmu_reduction), frozen=True)
    return Objective((forget, retain))
