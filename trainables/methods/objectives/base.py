"""Unlearning objectives: each a sum of terms over one side of the data.

A term sees one micro-batch and the totals of the whole effective batch, over all ranks and micro-batches, and returns
its share: the shares add up to the loss of the effective batch, so that the split into micro-batches and ranks
changes nothing. The whole objective, retain terms included, is what a rectifier projects (as in the paper).

Notation: l_t = -log p(y_t | y_<t, x) on label positions (0 elsewhere), S_i = sum of l_t over row i, n_i its labels;
superscript 0: the target model before unlearning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch.nn import functional

from trainables.common.tokenized_row import Example, RowWithAlternativeAnswer
from trainables.inference.padded_batch import IGNORED_LABEL, find_label_predicting_positions

DataSide = Literal["forget", "retain"]
Positions = Literal["labels", "answer", "attended", "all", "none"]
"""Where a term reads logits: where they predict a label, at the labels, at real tokens, at padding too, nowhere."""
AnswerChoice = Literal["own", "other", "both"]
"""Which answers of a row a term reads; of `both` a batch has all rows with their own, then all with the other."""


@dataclass(frozen=True)
class Totals:
    """Size of the effective batch of one side: label tokens, attended tokens, rows, tokens of its longest row."""

    tokens: int
    rows: int
    attended: int = 0
    longest: int = 0


@dataclass(frozen=True)
class ForwardOutput:
    """One micro-batch after its forward pass: B rows of T tokens.

    labels: (B, T). places: (N,), the N positions of the term, numbers of the flat (B, T). logits, frozen_logits:
    (N, V), there. reference: (B,), the S_i^0 of a forget row; where both answers are read (B / 2,), the own one's less
    the other's. hidden, frozen_hidden: (B, T, D), the residual stream after the objective's layer. None: unused.
    compiled_losses: `compute_label_losses`, compiled.
    """

    labels: torch.Tensor
    places: torch.Tensor
    logits: torch.Tensor
    reference: Any = None
    hidden: Any = None
    frozen_logits: Any = None
    frozen_hidden: Any = None
    compiled_losses: Any = None

    @cached_property
    def losses(self) -> torch.Tensor:
        """Return l_t: (B, T - 1), for a term that reads logits at labels."""
        return (self.compiled_losses or compute_label_losses)(self.logits, self.labels, self.places)

    @property
    def next_labels(self) -> torch.Tensor:
        """Return the label that follows each position of the term, IGNORED without one: (N,)."""
        return functional.pad(self.labels[:, 1:], (0, 1), value=IGNORED_LABEL).flatten()[self.places]


def compute_label_losses(logits: torch.Tensor, labels: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the negative log-likelihood of each label in fp32, 0 without: (N, V), (B, T), (N,) -> (B, T - 1).

    `places` of the N rows of `logits`, each before a label, are numbers: a GPU would be waited for with a mask.
    """
    found = functional.cross_entropy(logits.float(), labels.flatten()[places + 1], reduction="none")
    return found.new_zeros(labels.numel()).scatter(0, places, found).view_as(labels)[:, :-1]


def make_position_mask(which: Positions, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return a mask of the positions of that name: (B, T), (B, T) -> (B, T), boolean."""
    if which == "attended":
        return mask.bool()
    if which == "labels":
        return find_label_predicting_positions(labels)
    if which == "answer":
        return labels != IGNORED_LABEL
    return torch.full(labels.shape, which == "all", device=labels.device)


Loss = Callable[[ForwardOutput, Totals], torch.Tensor]
"""A term of one micro-batch: its share of the loss of the effective batch."""


@dataclass(frozen=True)
class Term:
    """One summand and what it needs of a forward pass.

    `width`: tokens that rows are padded to: None the micro-batch's longest, "batch" the effective batch's, or a number
    (a mean over padding depends on it, and on what is attended to there). `nll_weight`: the factor of a loss that is a
    multiple of the NLL, which a rectifier's pass on them serves, too; "balanced": `compute_balancing_weight`.
    """

    side: DataSide
    loss: Loss
    frozen: bool = False
    layer: int | None = None
    width: int | Literal["batch"] | None = None
    logits: Positions = "labels"
    nll_weight: float | Literal["balanced"] | None = None
    answers: AnswerChoice = "own"

    def select_examples(self, rows: Sequence[Example]) -> list[Example]:
        """Return the examples that the term reads of rows; those with another answer are RowWithAlternativeAnswer."""
        if self.answers == "own":
            return list(rows)
        others = [row.other for row in rows if isinstance(row, RowWithAlternativeAnswer)]
        return others if self.answers == "other" else [*rows, *others]


@dataclass(frozen=True)
class DualWeight:
    """Weight of the retain term as the multiplier of the constraint NLL <= bound (PDU).

    It begins at `start`; after each step, from `warmup` epochs on, it moves by `rate` times what the NLL of the
    effective batch is above the bound, and is never negative.
    """

    start: float
    bound: float
    rate: float
    warmup: float

    def update(self, multiplier: float, retain_loss: float) -> float:
        return max(0.0, multiplier + self.rate * (retain_loss - self.bound))


@dataclass(frozen=True)
class Objective:
    """Sum of terms to minimise. `needs_reference`: S_i^0 of every forget row of the run, before its first step."""

    terms: tuple[Term, ...]
    needs_reference: bool = False
    dual: DualWeight | None = None
    """The weight of its retain term in the place of `Term.nll_weight`."""

    @property
    def has_balanced_retain_weight(self) -> bool:
        return any(term.nll_weight == "balanced" for term in self.terms)

    @property
    def needs_retain(self) -> bool:
        return any(term.side == "retain" for term in self.terms)

    @property
    def needs_frozen_model(self) -> bool:
        return any(term.frozen for term in self.terms)


def nll(output: ForwardOutput, totals: Totals) -> torch.Tensor:
    """Return the mean negative log-likelihood of a label token, over the whole effective batch."""
    return output.losses.sum() / totals.tokens


NLL_TERM = Term("retain", nll)
"""The plain loss as a pass of its own, on whatever rows are given with it."""


def compute_balancing_weight(products: torch.Tensor) -> torch.Tensor:
    """Return ||g_f|| / ||g_r||, from <g_f, g_r>, ||g_r||^2, ||g_f||^2; 0 without g_r: (3,) -> ().

    g_f: the gradient of the forget terms, g_r: of the retain NLL, both of this step. g_f plus so much of g_r is ||g_f||
    times NGDiff's sum of two unit vectors (arXiv 2410.22086); VQGAN weighs two losses so (Esser et al., 2021, eq. 7).
    """
    _, retain_square, square = products
    return torch.where(retain_square > 0, square / retain_square, 0.0).sqrt()


def scale_loss(loss: Loss, by: float) -> Loss:
    return loss if by == 1.0 else lambda output, totals: by * loss(output, totals)
