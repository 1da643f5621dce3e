"""Unlearning objectives, each a sum of terms; their losses in a file. It imports config and inference."""

from functools import partial

from trainables.config.method_tables import METHODS
from trainables.methods import custom
from trainables.methods.method_constants import ObjectiveConstants
from trainables.methods.objectives import base, losses
from trainables.methods.objectives.base import ForwardOutput, Objective, Term, Totals, nll, scale_loss

__all__ = ["ForwardOutput", "Objective", "Term", "Totals", "make_objective"]


def make_objective(method: str, c: ObjectiveConstants, seed: int = 0) -> Objective:
    """Return the objective of a method with its constants; `nll` is ordinary fine-tuning on the forget side."""
    match method:
        case "nll":
            return Objective((Term("forget", nll),))
        case "ga":
            return Objective((_forget(losses.gradient_ascent, c),))
        case "ga_kl":
            return Objective((_forget(losses.gradient_ascent, c), _kl(c)))
        case "gd":
            return Objective((_forget(losses.gradient_ascent, c), *_retain(c)))
        case "wga":
            return Objective((_forget(partial(losses.weighted_gradient_ascent, beta=c.beta), c), *_retain(c)))
        case "npo":
            return Objective((_forget(partial(losses.npo, beta=c.beta), c),), needs_reference=True)
        case "npo_kl":
            return Objective((_forget(partial(losses.npo, beta=c.beta), c), _kl(c)), needs_reference=True)
        case "npo_gd":
            return Objective((_forget(partial(losses.npo, beta=c.beta), c), *_retain(c)), needs_reference=True)
        case "simnpo":
            return Objective((_forget(partial(losses.simnpo, beta=c.beta, margin=c.margin), c),))
        case "simnpo_gd":
            return Objective((_forget(partial(losses.simnpo, beta=c.beta, margin=c.margin), c), *_retain(c)))
        case "rmu":
            return losses.make_rmu_objective(c, seed)
        case "idk_dpo":
            term = Term("forget", scale_loss(partial(losses.dpo, beta=c.beta), c.forget_coefficient), answers="both")
            return Objective((term, *_retain(c)), needs_reference=True)
        case "idk_nll":
            return Objective((Term("forget", scale_loss(nll, c.forget_coefficient), answers="other"), *_retain(c)))
        case "undial":
            loss = scale_loss(partial(losses.undial, beta=c.beta, reduction=c.kl_reduction), c.forget_coefficient)
            return Objective((losses.make_term_reading_frozen_model("forget", loss, c.kl_reduction), *_retain(c)))
        case "satimp":
            return Objective((_forget(partial(losses.satimp, beta=c.beta, beta2=c.beta2), c), *_retain(c)))
        case "ceu":
            return Objective((_forget(losses.unlikelihood, c),))
        case "pdu":  # arXiv 2506.05314: forget_coefficient `pdu_forget_loss` + lambda NLL(retain), lambda by DualWeight
            # its authors update lambda on every micro-batch of every rank alone; here once a step, by the whole batch
            flat = Term("forget", scale_loss(losses.pdu_forget_loss, c.forget_coefficient), logits="answer")
            weight = float(c.retain_coefficient)  # never "balanced": check_rectifier_fits_retain_terms
            retain = Term("retain", scale_loss(nll, weight), nll_weight=weight)
            return Objective((flat, retain), dual=base.DualWeight(weight, c.retain_bound, c.dual_rate, c.dual_warmup))
    if method in METHODS and METHODS[method].custom:
        return custom.load_custom_method(method, "make")(c, seed)
    raise ValueError(f"unknown method '{method}'")


def _forget(loss: base.Loss, c: ObjectiveConstants) -> Term:
    return Term("forget", scale_loss(loss, c.forget_coefficient))


def _kl(c: ObjectiveConstants) -> Term:
    loss = scale_loss(partial(losses.kl_from_frozen_model, reduction=c.kl_reduction), c.kl_coefficient)
    return losses.make_term_reading_frozen_model("retain", loss, c.kl_reduction)


def _retain(c: ObjectiveConstants) -> tuple[Term, ...]:
    """Return the plain loss on retain rows, or nothing: a term of weight 0 would still cost its pass."""
    weight = c.retain_coefficient
    if weight == "balanced":
        return (Term("retain", nll, nll_weight=weight),)
    return (Term("retain", scale_loss(nll, weight), nll_weight=weight),) if weight else ()
