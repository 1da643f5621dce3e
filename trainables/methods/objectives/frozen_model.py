"""Terms beside the frozen target model: KL to its distributions on retain rows, UNDIAL, and RMU on hidden states."""

from functools import partial

import torch
from torch.nn import functional

from trainables.config.settings import KLReduction
from trainables.inference.padded_batch import IGNORED_LABEL
from trainables.methods.method_constants import FIXED_PAD_TOKENS, Constants
from trainables.methods.objectives.base import ForwardOutput, Loss, Objective, Positions, Side, Term, Totals, scale_loss


def kl(output: ForwardOutput, totals: Totals, reduction: KLReduction) -> torch.Tensor:
    """Return KL(p^0 || p) over the vocabulary, averaged over the positions that `reduction` names.

    labels: positions that predict a label. attended: real tokens. all_positions: padding too, rows padded to the
    effective batch's longest (open-unlearning). all_positions_fixed_pad: padding too, rows padded to 500 (TOFU's code).
    """
    target = torch.log_softmax(output.frozen_logits.float(), -1)
    current = torch.log_softmax(output.logits.float(), -1)
    everywhere = totals.rows * output.labels.shape[1]
    count = {"labels": totals.tokens, "attended": totals.attended}.get(reduction, everywhere)
    return functional.kl_div(current, target, reduction="sum", log_target=True) / count


def make_kl_term(c: Constants) -> Term:
    loss = scale_loss(partial(kl, reduction=c.kl_reduction), c.kl_coefficient)
    return make_frozen_model_term("retain", loss, c.kl_reduction)


def make_frozen_model_term(side: Side, loss: Loss, reduction: KLReduction) -> Term:
    """Return a term on both models' distributions, with the padding and positions that its reduction averages over."""
    width = {"all_positions": "batch", "all_positions_fixed_pad": FIXED_PAD_TOKENS}.get(reduction)
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


def make_rmu_objective(c: Constants, seed: int) -> Objective:
    """Return RMU's two terms at the outputs of one layer; neither reads logits."""
    width = "batch" if c.rmu_reduction == "all_positions" else None
    term = partial(Term, layer=c.layer, width=width, logits="none")
    forget = term("forget", partial(rmu_forget_loss, steering=c.steering, reduction=c.rmu_reduction, seed=seed))
    retain = term("retain", partial(rmu_retain_loss, alpha=c.alpha, reduction=c.rmu_reduction), frozen=True)
    return Objective((forget, retain))
