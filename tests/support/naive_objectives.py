"""Each objective re-stated row by row in float64, and recorded model outputs that trainables.training.forward_backward
can be run on.

A model here is a tape: what it says at every position of a row, padding too, because a causal model's outputs do not
depend on what is to the right of them. Used by test_objectives.py as the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from trainables.common.tokenized_row import Example, RowWithAlternativeAnswer
from trainables.methods.method_constants import TOFU_ROW_TOKENS, ObjectiveConstants
from trainables.methods.objectives import Objective, Term
from trainables.training import forward_backward

WORDS, HIDDEN, LAYER = 11, 6, 1
NAME = 1000
"""A row's first token, never a label, is NAME + its number on the tape."""


@dataclass
class Row:
    """One row and what both models say: logits (TOFU_ROW_TOKENS, WORDS), hidden (TOFU_ROW_TOKENS, HIDDEN)."""

    example: Example
    logits: torch.Tensor
    frozen_logits: torch.Tensor
    hidden: torch.Tensor
    frozen_hidden: torch.Tensor
    other: Row | None = None
    """The row with another answer."""

    @property
    def length(self) -> int:
        return len(self.example.input_ids)

    @property
    def start(self) -> int:
        return self.example.answer_start


UNEQUAL = ((7, 3), (12, 5), (4, 1), (9, 8), (6, 2), (10, 2))


def rows(seed: int, lengths: Sequence[tuple[int, int]] = UNEQUAL, hidden: int = HIDDEN) -> list[Row]:
    """Rows of unequal lengths, `(tokens, answer_start)` each."""
    generator = torch.Generator().manual_seed(seed)

    def leaf(width: int) -> torch.Tensor:
        return torch.randn(TOFU_ROW_TOKENS, width, generator=generator, dtype=torch.float64).requires_grad_()

    made = []
    for number, (tokens, start) in enumerate(lengths):
        ids = torch.randint(WORDS, (tokens - 1,), generator=generator).tolist()
        made.append(Row(Example((NAME + number, *ids), start), leaf(WORDS), leaf(WORDS), leaf(hidden), leaf(hidden)))
    return made


def with_others(batch: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """Rows with others as their other answers, which come after them on the tape."""
    for number, (row, other) in enumerate(zip(batch, others, strict=True), len(batch)):
        second = Example((NAME + number, *other.example.input_ids[1:]), other.start)
        row.example = RowWithAlternativeAnswer(row.example.input_ids, row.start, other=second)
        row.other = other
    return list(batch)


def others_of(batch: Sequence[Row]) -> list[Row]:
    return [row.other for row in batch if row.other is not None]


def leaves(*batches: Sequence[Row]) -> list[torch.Tensor]:
    """Everything a loss might depend on, the frozen model's outputs included: their gradient has to be zero."""
    return [x for batch in batches for r in batch for x in (r.logits, r.hidden, r.frozen_logits, r.frozen_hidden)]


class Tape:
    """Stands for the engine: plays recorded outputs and keeps the losses that are handed to it."""

    device = torch.device("cpu")
    packs, compiled_losses = False, None

    def __init__(self, side: Sequence[Row], rank: int = 0, world: int = 1) -> None:
        self.side, self.rank, self.world = side, rank, world
        self.losses: list[torch.Tensor] = []

    def inner(self, **inputs: Any) -> Any:
        return self._play(inputs["input_ids"], "logits", "hidden")

    def frozen(self, **inputs: Any) -> Any:
        return self._play(inputs["input_ids"], "frozen_logits", "frozen_hidden")

    def _play(self, input_ids: torch.Tensor, logits: str, hidden: str) -> Any:
        width = input_ids.shape[1]
        chosen = [self.side[name - NAME] for name in input_ids[:, 0].tolist()]
        after = torch.stack([getattr(row, hidden)[:width] for row in chosen])
        elsewhere = torch.full_like(after, 1e3)
        states = [after if place == LAYER + 1 else elsewhere for place in range(LAYER + 3)]
        return SimpleNamespace(
            logits=torch.stack([getattr(row, logits)[:width] for row in chosen]), hidden_states=tuple(states)
        )

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        self.losses.append(loss)

    def sum_over_ranks(self, value: torch.Tensor) -> torch.Tensor:
        return value


def of_term(
    term: Term, side: Sequence[Row], reference: Sequence[float] | None = None, size: int | None = None, world: int = 1
) -> torch.Tensor:
    """A term's loss as the loop takes it: over `world` ranks and in micro-batches of `size`, in a mixed order."""
    order = sorted(range(len(side)), key=lambda number: number * 7 % 5)
    examples, side = [row.example for row in side], [*side, *others_of(side)]
    losses = []
    for rank in range(world):
        tape = Tape(side, rank, world)
        task = SimpleNamespace(micro_batch=size, pad=0, frozen=tape.frozen)
        known = None if reference is None else list(reference)
        forward_backward.accumulate_gradient(tape, [(term, examples, order)], task, known)  # type: ignore[arg-type]
        losses += tape.losses
    return torch.stack(losses).sum()


def of_objective(
    objective: Objective, forget: Sequence[Row], retain: Sequence[Row], size: int | None = None, world: int = 1
) -> torch.Tensor:
    reference = sums(forget, frozen=True) if objective.needs_reference else None
    if reference is not None and any(term.answers != "own" for term in objective.terms):
        reference = reference - sums(others_of(forget), frozen=True)
    reference = None if reference is None else reference.tolist()
    return torch.stack(
        [of_term(term, forget if term.side == "forget" else retain, reference, size, world) for term in objective.terms]
    ).sum()


def token_losses(row: Row, frozen: bool = False) -> torch.Tensor:
    """l_t of each label: the logits at t - 1 say token t."""
    logits = row.frozen_logits.detach() if frozen else row.logits
    return torch.stack(
        [
            torch.logsumexp(logits[place - 1], 0) - logits[place - 1, row.example.input_ids[place]]
            for place in range(row.start, row.length)
        ]
    )


def sums(batch: Sequence[Row], frozen: bool = False) -> torch.Tensor:
    return torch.stack([token_losses(row, frozen).sum() for row in batch])


def nll(batch: Sequence[Row]) -> torch.Tensor:
    return torch.cat([token_losses(row) for row in batch]).mean()


def wga(batch: Sequence[Row], beta: float) -> torch.Tensor:
    losses = torch.cat([token_losses(row) for row in batch])
    return -(torch.exp(-losses).detach() ** beta * losses).mean()


def npo(batch: Sequence[Row], beta: float) -> torch.Tensor:
    """2/beta mean log(1 + (pi/pi0)^beta), pi the probability of a whole answer."""
    ratio = torch.exp(-sums(batch) + sums(batch, frozen=True))
    return 2 / beta * torch.log(1 + ratio**beta).mean()


def simnpo(batch: Sequence[Row], beta: float, margin: float) -> torch.Tensor:
    """2/beta mean log(1 + exp(-beta (mean l - margin))), a row's mean being over its own labels."""
    means = torch.stack([token_losses(row).mean() for row in batch])
    return 2 / beta * torch.log(1 + torch.exp(-beta * (means - margin))).mean()


def kl(batch: Sequence[Row], reduction: str) -> torch.Tensor:
    """Mean over the positions of sum_v p0 (log p0 - log p)."""
    longest = max(row.length for row in batch)
    parts = []
    for row in batch:
        places = {
            "labels": range(row.start - 1, row.length - 1),
            "attended": range(row.length),
            "all_positions": range(longest),
            "all_positions_fixed_pad": range(500),
        }[reduction]
        p0 = torch.softmax(row.frozen_logits.detach()[list(places)], -1)
        p = torch.softmax(row.logits[list(places)], -1)
        parts.append((p0 * (p0.log() - p.log())).sum(-1))
    return torch.cat(parts).mean()


def distance(batch: Sequence[Row], away: Callable[[Row], torch.Tensor], reduction: str) -> torch.Tensor:
    """RMU's mean square of `away(row)`, (positions, HIDDEN): over B T D, or rows' means over their own label tokens."""
    if reduction == "all_positions":
        longest = max(row.length for row in batch)
        return torch.stack([away(row)[:longest] for row in batch]).pow(2).mean()
    return torch.stack([away(row)[row.start : row.length].pow(2).mean() for row in batch]).mean()


def control(term: Term, hidden: int = HIDDEN) -> torch.Tensor:
    """RMU's c u, read off the gradient of mean (h - c u)^2, which is 2 (h - c u) / D where a row has one label."""
    (row,) = rows(0, ((2, 1),), hidden)
    (gradient,) = torch.autograd.grad(of_term(term, [row]), row.hidden)
    return row.hidden.detach()[1] - gradient[1] * hidden / 2


def rmu(forget: Sequence[Row], retain: Sequence[Row], c: ObjectiveConstants, vector: torch.Tensor) -> torch.Tensor:
    steered = distance(forget, lambda row: row.hidden - vector, c.rmu_reduction)
    kept = distance(retain, lambda row: row.hidden - row.frozen_hidden.detach(), c.rmu_reduction)
    return steered + c.alpha * kept


def idk_dpo(batch: Sequence[Row], beta: float) -> torch.Tensor:
    """2/beta mean log(1 + (r / r')^beta), r and r' the ratios pi / pi0 of a row's own and of its other answer."""
    own, other = (torch.exp(sums(side, frozen=True) - sums(side)) for side in (batch, others_of(batch)))
    return 2 / beta * torch.log(1 + (own / other) ** beta).mean()


def undial(batch: Sequence[Row], beta: float, reduction: str) -> torch.Tensor:
    """Cross entropy against p0 with the odds of the true token divided by e^beta; without a label, of token V - 100."""
    longest = {"all_positions": max(row.length for row in batch), "all_positions_fixed_pad": 500}.get(reduction, 0)
    parts = []
    for row in batch:
        places = (
            range(row.start - 1, row.length - 1) if reduction == "labels" else range((longest or row.length + 1) - 1)
        )
        for place in places:
            labelled = row.start <= place + 1 < row.length
            true = row.example.input_ids[place + 1] if labelled else (WORDS - 100) % WORDS
            p0 = torch.softmax(row.frozen_logits.detach()[place], 0)
            odds = torch.where(torch.arange(WORDS) == true, p0 * math.exp(-beta), p0)
            parts.append(-(odds / odds.sum() * torch.softmax(row.logits[place], 0).log()).sum())
    return torch.stack(parts).mean()


def satimp(batch: Sequence[Row], beta: float, beta2: float) -> torch.Tensor:
    losses = torch.cat([token_losses(row) for row in batch])
    p = torch.exp(-losses).detach()
    return -(p**beta * (1 - p) ** beta2 * losses).mean()


def ceu(batch: Sequence[Row]) -> torch.Tensor:
    """Unlikelihood of every label but the first of each row; 0 where no row has a second label."""
    parts = [
        -torch.log(1 - torch.softmax(row.logits[place - 1], 0)[row.example.input_ids[place]])
        for row in batch
        for place in range(row.start + 1, row.length)
    ]
    return torch.stack(parts).mean() if parts else 0 * sum(row.logits.sum() for row in batch)  # type: ignore[return-value]


def flat(batch: Sequence[Row]) -> torch.Tensor:
    """PDU's forget term, at the answers' own places."""
    answers = torch.cat([row.logits[row.start : row.length] for row in batch])
    return torch.stack([(logits.max() - logits.sum() / WORDS) ** 2 for logits in answers]).mean()


NAIVE: dict[str, Callable[[Sequence[Row], Sequence[Row], Any], torch.Tensor]] = {
    "nll": lambda f, r, c: nll(f),
    "ga": lambda f, r, c: -c.forget_coefficient * nll(f),
    "ga_kl": lambda f, r, c: -c.forget_coefficient * nll(f) + c.kl_coefficient * kl(r, c.kl_reduction),
    "gd": lambda f, r, c: -c.forget_coefficient * nll(f) + c.retain_coefficient * nll(r),
    "wga": lambda f, r, c: c.forget_coefficient * wga(f, c.beta) + c.retain_coefficient * nll(r),
    "npo": lambda f, r, c: c.forget_coefficient * npo(f, c.beta),
    "npo_kl": lambda f, r, c: c.forget_coefficient * npo(f, c.beta) + c.kl_coefficient * kl(r, c.kl_reduction),
    "npo_gd": lambda f, r, c: c.forget_coefficient * npo(f, c.beta) + c.retain_coefficient * nll(r),
    "simnpo": lambda f, r, c: c.forget_coefficient * simnpo(f, c.beta, c.margin),
    "idk_dpo": lambda f, r, c: c.forget_coefficient * idk_dpo(f, c.beta) + c.retain_coefficient * nll(r),
    "idk_nll": lambda f, r, c: c.forget_coefficient * nll(others_of(f)) + c.retain_coefficient * nll(r),
    "undial": lambda f, r, c: c.forget_coefficient * undial(f, c.beta, c.kl_reduction) + c.retain_coefficient * nll(r),
    "satimp": lambda f, r, c: c.forget_coefficient * satimp(f, c.beta, c.beta2) + c.retain_coefficient * nll(r),
    "ceu": lambda f, r, c: c.forget_coefficient * ceu(f),
    "pdu": lambda f, r, c: c.forget_coefficient * flat(f) + c.retain_coefficient * nll(r),
    "simnpo_gd": lambda f, r, c: c.forget_coefficient * simnpo(f, c.beta, c.margin) + c.retain_coefficient * nll(r),
}
