"""Unlearning objectives: each a sum of terms over one side of the data.

A term sees one micro-batch and the totals of the whole effective batch, over all ranks and micro-batches, and returns
its share: the shares add up to the loss of the effective batch, so that the split into micro-batches and ranks
changes nothing. The whole objective, retain terms included, is what a rectifier projects (as in the paper).

Notation: l_t = -log p(y_t | y_<t, x) on label positions (0 elsewhere), S_i = sum of l_t over row i, n_i its labels;
superscript 0: the target model before unlearning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import torch
from torch.nn import functional

from trainables.inference.scoring import IGNORED
from trainables.methods import custom
from trainables.methods.presets import FIXED_PAD, Constants, KLReduction

Side = Literal["forget", "retain"]
Positions = Literal["labels", "attended", "all", "none"]
"""Where a term reads logits: where they predict a label, at real tokens, at padding too, nowhere."""


@dataclass(frozen=True)
class Totals:
    """Size of the effective batch of one side: label tokens, attended tokens, rows, tokens of its longest row."""

    tokens: int
    rows: int
    attended: int = 0
    longest: int = 0


@dataclass(frozen=True)
class Pass:
    """One micro-batch after its forward pass: B rows of T tokens.

    mask, labels: (B, T). logits, frozen_logits: (N, V), at the N positions of the term, row by row. reference: (B,),
    the S_i^0 of a forget row. hidden, frozen_hidden: (B, T, D), the residual stream after the objective's layer.
    """

    labels: torch.Tensor
    mask: torch.Tensor
    logits: torch.Tensor
    reference: torch.Tensor | None = None
    hidden: torch.Tensor | None = None
    frozen_logits: torch.Tensor | None = None
    frozen_hidden: torch.Tensor | None = None

    @cached_property
    def losses(self) -> torch.Tensor:
        """The l_t: (B, T - 1), of a term that reads logits at labels."""
        return label_losses(self.logits, self.labels)

    @property
    def counts(self) -> torch.Tensor:
        """n_i: (B,)."""
        return (self.labels[:, 1:] != IGNORED).sum(1)


def label_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood of each label in fp32, 0 where there is none: (N, V), (B, T) -> (B, T - 1).

    The N rows of `logits` are those that predict a label (`positions`).
    """
    shifted = labels[:, 1:]
    labelled = shifted != IGNORED
    found = functional.cross_entropy(logits.float(), shifted[labelled], reduction="none")
    return torch.zeros(shifted.shape, dtype=found.dtype, device=found.device).masked_scatter(labelled, found)


def positions(which: Positions, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The positions of that name: (B, T), (B, T) -> (B, T), boolean."""
    if which == "attended":
        return mask.bool()
    if which == "labels":
        return functional.pad(labels[:, 1:] != IGNORED, (0, 1))
    return torch.full(labels.shape, which == "all", device=labels.device)


@dataclass(frozen=True)
class Term:
    """One summand and what it needs of a forward pass.

    `width`: tokens that rows are padded to: None the micro-batch's longest, "batch" the effective batch's, or a number
    (a mean over padding depends on it, and on what is attended to there).
    """

    side: Side
    loss: Callable[[Pass, Totals], torch.Tensor]
    frozen: bool = False
    layer: int | None = None
    width: int | Literal["batch"] | None = None
    logits: Positions = "labels"


@dataclass(frozen=True)
class Objective:
    """What is minimised. `needs_reference`: S_i^0 of every forget row that is drawn, before the first step."""

    terms: tuple[Term, ...]
    needs_reference: bool = False

    @property
    def needs_retain(self) -> bool:
        return any(term.side == "retain" for term in self.terms)

    @property
    def needs_frozen(self) -> bool:
        return any(term.frozen for term in self.terms)


def nll(seen: Pass, totals: Totals) -> torch.Tensor:
    """Mean negative log-likelihood of a label token, over the whole effective batch."""
    return seen.losses.sum() / totals.tokens


NLL = Term("retain", nll)
"""The plain loss as a pass of its own, on whatever rows are given with it."""


def ascent(seen: Pass, totals: Totals) -> torch.Tensor:
    """Gradient ascent (GA): -NLL."""
    return -nll(seen, totals)


def weighted_ascent(beta: float) -> Callable[[Pass, Totals], torch.Tensor]:
    """WGA (Wang et al., 2025, "Rethinking LLM unlearning objectives"): -mean_t w_t l_t, w_t = p_t^beta detached."""

    def loss(seen: Pass, totals: Totals) -> torch.Tensor:
        weights = torch.exp(-beta * seen.losses.detach())
        return -(weights * seen.losses).sum() / totals.tokens

    return loss


def npo(beta: float) -> Callable[[Pass, Totals], torch.Tensor]:
    """NPO (Zhang et al., 2024, eq. 3): -(2/beta) mean_i logsigmoid(beta (S_i - S_i^0)); sums over tokens, not means."""

    def loss(seen: Pass, totals: Totals) -> torch.Tensor:
        if seen.reference is None:
            raise ValueError("NPO needs the target model's log-likelihoods")
        ratio = seen.losses.sum(1) - seen.reference
        return -(2 / beta) * functional.logsigmoid(beta * ratio).sum() / totals.rows

    return loss


def simnpo(beta: float, margin: float) -> Callable[[Pass, Totals], torch.Tensor]:
    """SimNPO (Fan et al., 2024, eq. 4): -(2/beta) mean_i logsigmoid(beta (S_i / n_i - margin)), without a reference."""

    def loss(seen: Pass, totals: Totals) -> torch.Tensor:
        mean = seen.losses.sum(1) / seen.counts
        return -(2 / beta) * functional.logsigmoid(beta * (mean - margin)).sum() / totals.rows

    return loss


def kl(reduction: KLReduction) -> Callable[[Pass, Totals], torch.Tensor]:
    """KL(p^0 || p) over the vocabulary, averaged over the positions that `reduction` names.

    labels: positions that predict a label. attended: real tokens. all_positions: padding too, rows padded to the
    effective batch's longest (open-unlearning). all_positions_fixed_pad: padding too, rows padded to 500 (TOFU's code).
    """

    def loss(seen: Pass, totals: Totals) -> torch.Tensor:
        if seen.frozen_logits is None:
            raise ValueError("KL needs the frozen model's logits")
        target = torch.log_softmax(seen.frozen_logits.float(), -1)
        current = torch.log_softmax(seen.logits.float(), -1)
        everywhere = totals.rows * seen.mask.shape[1]
        count = {"labels": totals.tokens, "attended": totals.attended}.get(reduction, everywhere)
        return functional.kl_div(current, target, reduction="sum", log_target=True) / count

    return loss


def steer(steering: float, reduction: str, seed: int) -> Callable[[Pass, Totals], torch.Tensor]:
    """RMU's forget term (Li et al., 2024, eq. 1): ||h - c u||^2, u uniform in [0, 1)^D, normalised, fixed by seed."""

    def loss(seen: Pass, totals: Totals) -> torch.Tensor:
        if seen.hidden is None:
            raise ValueError("RMU needs hidden states")
        generator = torch.Generator().manual_seed(seed)
        control = torch.rand(seen.hidden.shape[-1], generator=generator)
        control = (steering * control / control.norm()).to(seen.hidden)
        return _squared((seen.hidden - control).float(), seen, totals, reduction)

    return loss


def keep(alpha: float, reduction: str) -> Callable[[Pass, Totals], torch.Tensor]:
    """RMU's retain term (eq. 2): alpha ||h - h^0||^2."""

    def loss(seen: Pass, totals: Totals) -> torch.Tensor:
        if seen.hidden is None or seen.frozen_hidden is None:
            raise ValueError("RMU needs hidden states of both models")
        return alpha * _squared((seen.hidden - seen.frozen_hidden).float(), seen, totals, reduction)

    return loss


def _squared(difference: torch.Tensor, seen: Pass, totals: Totals, reduction: str) -> torch.Tensor:
    """Mean over D, then over all positions, padding included, or over a row's label tokens and then rows."""
    square = difference.pow(2).mean(-1)
    if reduction == "all_positions":
        return square.sum() / (totals.rows * square.shape[1])
    labelled = seen.labels != IGNORED
    return ((square * labelled).sum(1) / labelled.sum(1)).sum() / totals.rows


def make(method: str, c: Constants, seed: int = 0) -> Objective:
    """The objective of a method with its constants; `nll` is ordinary fine-tuning on the forget side."""
    forget, retain = c.forget_coefficient, c.retain_coefficient
    kept = (Term("retain", scaled(nll, retain)),) if retain else ()
    width = {"all_positions": "batch", "all_positions_fixed_pad": FIXED_PAD}.get(c.kl_reduction)
    near: Positions = c.kl_reduction if c.kl_reduction in ("labels", "attended") else "all"
    close = Term("retain", scaled(kl(c.kl_reduction), c.kl_coefficient), frozen=True, width=width, logits=near)  # type: ignore[arg-type]
    preference = Term("forget", scaled(npo(c.beta), forget))
    simple = Term("forget", scaled(simnpo(c.beta, c.margin), forget))
    match method:
        case "nll":
            return Objective((Term("forget", nll),))
        case "ga":
            return Objective((Term("forget", scaled(ascent, forget)),))
        case "ga_kl":
            return Objective((Term("forget", scaled(ascent, forget)), close))
        case "gd":
            return Objective((Term("forget", scaled(ascent, forget)), *kept))
        case "wga":
            return Objective((Term("forget", scaled(weighted_ascent(c.beta), forget)), *kept))
        case "npo":
            return Objective((preference,), needs_reference=True)
        case "npo_kl":
            return Objective((preference, close), needs_reference=True)
        case "npo_gd":
            return Objective((preference, *kept), needs_reference=True)
        case "simnpo":
            return Objective((simple,))
        case "simnpo_gd":
            return Objective((simple, *kept))
        case "rmu":
            wide = "batch" if c.rmu_reduction == "all_positions" else None
            inside = partial(Term, layer=c.layer, width=wide, logits="none")
            away = inside("forget", steer(c.steering, c.rmu_reduction, seed))
            hold = inside("retain", keep(c.alpha, c.rmu_reduction), frozen=True)
            return Objective((away, hold))
    if method in custom.NAMES:
        return custom.find(method).make(c, seed)
    raise ValueError(f"unknown method '{method}'")


def scaled(loss: Callable[[Pass, Totals], torch.Tensor], by: float) -> Callable[[Pass, Totals], torch.Tensor]:
    """`by` times a term's loss."""
    return loss if by == 1.0 else lambda seen, totals: by * loss(seen, totals)
