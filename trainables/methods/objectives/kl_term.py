"""The retain term that keeps the distributions of the target model."""

from __future__ import annotations

from functools import partial

import torch
from torch.nn import functional

from trainables.methods.method_constants import FIXED_PAD, Constants, KLReduction
from trainables.methods.objectives.base import ForwardOutput, Loss, Positions, Side, Term, Totals, scaled


def kl(output: ForwardOutput, totals: Totals, reduction: KLReduction) -> torch.Tensor:
    """Return KL(p^0 || p) over the vocabulary, averaged over the positions that `reduction` names.

    labels: positions that predict a label. attended: real tokens. all_positions: padding too, rows padded to the
    effective batch's longest (open-unlearning). all_positions_fixed_pad: padding too, rows padded to 500 (TOFU's code).
    """
    target = torch.log_softmax(output.frozen_logits.float(), -1)
    current = torch.log_softmax(output.logits.float(), -1)
    everywhere = totals.rows * output.mask.shape[1]
    count = {"labels": totals.tokens, "attended": totals.attended}.get(reduction, everywhere)
    return functional.kl_div(current, target, reduction="sum", log_target=True) / count


def kl_term(c: Constants) -> Term:
    """Return the term over retain rows."""
    loss = scaled(partial(kl, reduction=c.kl_reduction), c.kl_coefficient)
    return frozen_term("retain", loss, c.kl_reduction)


def frozen_term(side: Side, loss: Loss, reduction: KLReduction) -> Term:
    """Return a term on both models' distributions, with the padding and positions that its reduction averages over."""
    width = {"all_positions": "batch", "all_positions_fixed_pad": FIXED_PAD}.get(reduction)
    return Term(side, loss, frozen=True, width=width, logits=read_positions(reduction))  # type: ignore[arg-type]


def read_positions(reduction: KLReduction) -> Positions:
    """Return where logits are read."""
    return reduction if reduction in ("labels", "attended") else "all"
