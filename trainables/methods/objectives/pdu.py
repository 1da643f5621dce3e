"""PDU: flat logits on forget rows, under a bound of the retain loss that a multiplier keeps."""

from __future__ import annotations

import torch

from trainables.methods.method_constants import Constants
from trainables.methods.objectives.base import DualWeight, ForwardOutput, Objective, Term, Totals, nll, scale_loss


def flatness_loss(output: ForwardOutput, totals: Totals) -> torch.Tensor:
    """Return PDU's forget term: the mean of (max_v z - mean_v z)^2 at the answer's tokens, as its authors' code has it.

    These logits predict the tokens after them.
    """
    logits = output.logits.float()
    return (logits.amax(1) - logits.mean(1)).square().sum() / totals.tokens


def pdu_objective(c: Constants) -> Objective:
    """Return PDU (arXiv 2506.05314): forget_coefficient * `flatness_loss` + lambda NLL(retain), lambda by DualWeight.

    Its authors update lambda on every micro-batch of every rank alone; here once a step, by the effective batch.
    """
    forget = Term("forget", scale_loss(flatness_loss, c.forget_coefficient), logits="answer")
    weight = float(c.retain_coefficient)  # never "balanced": check_retain_once
    retain = Term("retain", scale_loss(nll, weight), nll_weight=weight)
    dual = DualWeight(weight, c.retain_bound, c.dual_rate, c.dual_warmup)
    return Objective((forget, retain), dual=dual)
