"""Each objective re-stated row by row in float64, and recorded model outputs that trainables.training.forward_backward
can be run on.

A model here is a tape: what it says at every position of a row, padding too, because a causal model's outputs do not
depend on what is to the right of them. Used by test_objectives.py as the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from trainables.common.tokenized_row import Example
from trainables.methods.method_constants import FIXED_PAD, Constants
from trainables.methods.objectives import Objective, Term
from trainables.training import forward_backward

WORDS, HIDDEN, LAYER = 11, 6, 1
NAME = 1000
"""A row's first token, never a label, is NAME + its number on the tape."""


@dataclass
class Row:
    """One row and what both models say: logits (FIXED_PAD, WORDS), hidden (FIXED_PAD, HIDDEN), all leaves."""

    example: Example
    logits: torch.Tensor
    frozen_logits: torch.Tensor
    hidden: torch.Tensor
    frozen_hidden: torch.Tensor

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
        return torch.randn(FIXED_PAD, width, generator=generator, dtype=torch.float64).requires_grad_()

    made = []
    for number, (tokens, start) in enumerate(lengths):
        ids = torch.randint(WORDS, (tokens - 1,), generator=generator).tolist()
        made.append(
            Row(Example((NAME + number, *ids), start), leaf(WORDS), leaf(WORDS), leaf(hidden), leaf(hidden)),
        )
    return made


def leaves(*batches: Sequence[Row]) -> list[torch.Tensor]:
    """Everything a loss might depend on, the frozen model's outputs included: their gradient has to be zero."""
    return [x for batch in batches for r in batch for x in (r.logits, r.hidden, r.frozen_logits, r.frozen_hidden)]


class Tape:
    """Stands for the engine: plays recorded outputs and keeps the losses that are handed to it."""

    device = torch.device("cpu")

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

    def total(self, value: torch.Tensor) -> torch.Tensor:
        return value


def of_term(
    term: Term, side: Sequence[Row], reference: Sequence[float] | None = None, size: int | None = None, world: int = 1
) -> torch.Tensor:
    """A term's loss as the loop takes it: over `world` ranks and in micro-batches of `size`, in a mixed order."""
    order = sorted(range(len(side)), key=lambda number: number * 7 % 5)
    examples = [row.example for row in side]
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
    reference = sums(forget, frozen=True).tolist() if objective.needs_reference else None
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


def wga(batch: Sequence[Row], beta: float, detached: bool = True) -> torch.Tensor:
    losses = torch.cat([token_losses(row) for row in batch])
    weights = torch.exp(-losses) ** beta
    return -((weights.detach() if detached else weights) * losses).mean()


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


def rmu(forget: Sequence[Row], retain: Sequence[Row], c: Constants, vector: torch.Tensor) -> torch.Tensor:
    steered = distance(forget, lambda row: row.hidden - vector, c.rmu_reduction)
    kept = distance(retain, lambda row: row.hidden - row.frozen_hidden.detach(), c.rmu_reduction)
    return steered + c.alpha * kept


NAIVE: dict[str, Callable[[Sequence[Row], Sequence[Row], Constants], torch.Tensor]] = {
    "nll": lambda f, r, c: nll(f),
    "ga": lambda f, r, c: -c.forget_coefficient * nll(f),
    "ga_kl": lambda f, r, c: -c.forget_coefficient * nll(f) + c.kl_coefficient * kl(r, c.kl_reduction),
    "gd": lambda f, r, c: -c.forget_coefficient * nll(f) + c.retain_coefficient * nll(r),
    "wga": lambda f, r, c: c.forget_coefficient * wga(f, c.beta) + c.retain_coefficient * nll(r),
    "npo": lambda f, r, c: c.forget_coefficient * npo(f, c.beta),
    "npo_kl": lambda f, r, c: c.forget_coefficient * npo(f, c.beta) + c.kl_coefficient * kl(r, c.kl_reduction),
    "npo_gd": lambda f, r, c: c.forget_coefficient * npo(f, c.beta) + c.retain_coefficient * nll(r),
    "simnpo": lambda f, r, c: c.forget_coefficient * simnpo(f, c.beta, c.margin),
    "simnpo_gd": lambda f, r, c: c.forget_coefficient * simnpo(f, c.beta, c.margin) + c.retain_coefficient * nll(r),
}
