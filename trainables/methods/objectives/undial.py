"""UNDIAL: the model learns the target model's distribution with the true token's logit lowered."""

from __future__ import annotations

import torch
from torch.nn import functional

from trainables.inference.padded_batch import IGNORED
from trainables.methods.method_constants import KLReduction
from trainables.methods.objectives.base import ForwardOutput, Totals, positions
from trainables.methods.objectives.kl_term import read_positions


def undial(output: ForwardOutput, totals: Totals, beta: float, reduction: KLReduction) -> torch.Tensor:
    """Return UNDIAL (Dong et al., 2025): the mean of -sum_v q_v log p_v, q = softmax(z^0 - beta onehot(y)).

    The mean is over label positions, as in the paper. Other reductions are open-unlearning's: over all positions that
    predict anything, where one without a label has the logit of token V - 100 lowered (there -100 means no label).
    """
    following = functional.pad(output.labels[:, 1:], (0, 1), value=IGNORED)
    chosen = following[positions(read_positions(reduction), output.labels, output.mask)]
    target = output.frozen_logits.float()
    lowered = torch.full((len(chosen), 1), -beta, device=target.device)
    target = torch.softmax(target.scatter_add(1, chosen.remainder(target.shape[1])[:, None], lowered), 1)
    losses = functional.cross_entropy(output.logits.float(), target, reduction="none")
    if reduction in ("labels", "attended"):
        return losses.sum() / (totals.tokens if reduction == "labels" else totals.attended)
    rows, width = output.mask.shape  # the last position predicts nothing
    return losses.view(rows, width)[:, :-1].sum() / (totals.rows * (width - 1))
