"""Each objective's loss and gradient against a naive float64 re-statement, row by row and token by token."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables import objectives, scoring
from trainables.config import Objective as Settings
from trainables.templates import Example

WORDS = 11
TOLERANCE = 1e-5
"""Losses are taken in fp32; a sum over some 60 tokens."""

Rows = list[tuple[Example, torch.Tensor]]
"""Each row with its own leaf of logits (tokens, words) in float64."""


def rows(seed: int, lengths: Sequence[tuple[int, int]] = ((7, 3), (12, 5), (4, 1), (9, 8), (6, 2))) -> Rows:
    """Rows of unequal lengths, `(tokens, answer_start)` each."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for tokens, start in lengths:
        ids = tuple(torch.randint(WORDS, (tokens,), generator=generator).tolist())
        logits = 2 * torch.randn(tokens, WORDS, generator=generator, dtype=torch.float64)
        made.append((Example(ids, start), logits.requires_grad_()))
    return made


def leaves(batch: Rows) -> list[torch.Tensor]:
    return [logits for _, logits in batch]


def ours(
    term: objectives.Term, batch: Rows, known: torch.Tensor | None, size: int | None = None, totals: Rows | None = None
) -> torch.Tensor:
    """A term's loss as the loop takes it: in padded micro-batches of `size` rows, with totals of the whole."""
    total = objectives.Totals(sum(example.answer_tokens for example, _ in totals or batch), len(totals or batch))
    losses = []
    for start in range(0, len(batch), size or len(batch)):
        piece = batch[start : start + (size or len(batch))]
        collated = scoring.collate([example for example, _ in piece], pad=0)
        width = collated["labels"].shape[1]
        padding = [torch.full((width - len(logits), WORDS), 7.0, dtype=torch.float64) for _, logits in piece]
        logits = torch.stack([torch.cat([row[1], extra]) for row, extra in zip(piece, padding, strict=True)])
        part = None if known is None else known[start : start + len(piece)]
        losses.append(term.loss(scoring.token_losses(logits, collated["labels"]), part, total))
    return torch.stack(losses).sum()


def row_losses(example: Example, logits: torch.Tensor) -> list[torch.Tensor]:
    """-log p of each label, the logits at t - 1 saying token t."""
    return [
        torch.logsumexp(logits[place - 1], 0) - logits[place - 1, example.input_ids[place]]
        for place in range(example.answer_start, len(example.input_ids))
    ]


def mean_nll(batch: Rows) -> torch.Tensor:
    losses = [loss for row in batch for loss in row_losses(*row)]
    return torch.stack(losses).mean()


def sums(batch: Rows) -> torch.Tensor:
    return torch.stack([torch.stack(row_losses(*row)).sum() for row in batch])


def naive_npo(batch: Rows, known: torch.Tensor, beta: float) -> torch.Tensor:
    """2/beta mean log(1 + (pi/pi0)^beta), pi the probability of a whole answer."""
    ratio = torch.exp(-sums(batch) + known)
    return 2 / beta * torch.log(1 + ratio**beta).mean()


def compare(found: torch.Tensor, expected: torch.Tensor, variables: list[torch.Tensor]) -> None:
    assert found.item() == pytest.approx(expected.item(), rel=TOLERANCE, abs=TOLERANCE)
    for one, other in zip(torch.autograd.grad(found, variables), torch.autograd.grad(expected, variables), strict=True):
        assert torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE * float(other.abs().max()))


@pytest.mark.parametrize("size", [None, 1, 2, 3])
def test_ga(size: int | None) -> None:
    (term,) = objectives.make("ga", Settings()).terms
    batch = rows(0)
    assert term.side == "forget"
    compare(ours(term, batch, None, size), -mean_nll(batch), leaves(batch))


@pytest.mark.parametrize("size", [None, 1, 2, 3])
def test_gd_is_the_difference_of_two_token_means(size: int | None) -> None:
    terms = {term.side: term for term in objectives.make("gd", Settings()).terms}
    forget, retain = rows(0), rows(1, ((5, 2), (11, 4)))
    found = ours(terms["forget"], forget, None, size) + ours(terms["retain"], retain, None, size)
    compare(found, -mean_nll(forget) + mean_nll(retain), leaves(forget) + leaves(retain))


@pytest.mark.parametrize("size", [None, 1, 2, 3])
@pytest.mark.parametrize("beta", [0.05, 0.1, 1.0])
def test_npo(size: int | None, beta: float) -> None:
    (term,) = objectives.make("npo", Settings(beta=beta)).terms
    batch = rows(0)
    known = sums(rows(2)).detach()
    assert term.side == "forget"
    compare(ours(term, batch, known, size), naive_npo(batch, known, beta), leaves(batch))


def test_fine_tuning() -> None:
    (term,) = objectives.make("nll", Settings()).terms
    batch = rows(0)
    compare(ours(term, batch, None), mean_nll(batch), leaves(batch))


lengths = st.lists(st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))), min_size=1)


@settings(max_examples=40, deadline=None)
@given(lengths.filter(lambda found: len(found) < 7), st.integers(1, 6), st.sampled_from(["ga", "npo"]))
def test_any_split_into_micro_batches_adds_up(shape: list[tuple[int, int]], size: int, method: str) -> None:
    (term,) = objectives.make(method, Settings()).terms
    batch = rows(3, shape)
    known = sums(batch).detach() + 1.5
    compare(ours(term, batch, known, size), ours(term, batch, known), leaves(batch))


def test_any_split_over_ranks_adds_up() -> None:
    """A rank's share is scaled by the totals over all ranks, not by its own rows."""
    (term,) = objectives.make("ga", Settings()).terms
    batch = rows(4)
    shares = ours(term, batch[:2], None, totals=batch) + ours(term, batch[2:], None, totals=batch)
    compare(shares, -mean_nll(batch), leaves(batch))


@pytest.mark.parametrize("beta", [0.1, 1.0, 4.5])
def test_npo_starts_at_two_over_beta_ln_two(beta: float) -> None:
    (term,) = objectives.make("npo", Settings(beta=beta)).terms
    batch = rows(5)
    assert ours(term, batch, sums(batch).detach()).item() == pytest.approx(2 / beta * math.log(2), rel=TOLERANCE)


def test_npo_tends_to_ga_on_sums_as_beta_vanishes() -> None:
    (term,) = objectives.make("npo", Settings(beta=1e-6)).terms
    batch = rows(6)
    known = sums(rows(7)).detach()
    found = torch.autograd.grad(ours(term, batch, known), leaves(batch))
    expected = torch.autograd.grad(-sums(batch).mean(), leaves(batch))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


def test_npo_weighs_rows_by_what_is_left_of_them() -> None:
    """The gradient of row i is that of GA on its sum times 2 pi^beta / (pi^beta + pi0^beta): none once forgotten."""
    beta, batch = 0.5, rows(8)
    known = sums(batch).detach() - torch.tensor([0.0, 2.0, -2.0, 400.0, -400.0])
    (term,) = objectives.make("npo", Settings(beta=beta)).terms
    found = torch.autograd.grad(ours(term, batch, known), leaves(batch))
    left = 2 / (1 + torch.exp(beta * (sums(batch).detach() - known)))
    assert left.tolist() == pytest.approx([1, 0.5379, 1.4621, 0, 2], abs=1e-4)
    for row, weight, gradient in zip(batch, left, found, strict=True):
        (expected,) = torch.autograd.grad(-weight * sums([row]).sum() / len(batch), [row[1]])
        assert torch.allclose(gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("known", [None, torch.zeros(5)])
def test_prompt_and_padding_have_no_gradient(known: torch.Tensor | None) -> None:
    (term,) = objectives.make("ga" if known is None else "npo", Settings()).terms
    batch = rows(9)
    for (example, _), gradient in zip(batch, torch.autograd.grad(ours(term, batch, known), leaves(batch)), strict=True):
        silent = [not row.any() for row in gradient]
        assert silent == [not example.answer_start - 1 <= k < len(gradient) - 1 for k in range(len(gradient))]


def test_npo_without_reference_is_refused() -> None:
    (term,) = objectives.make("npo", Settings()).terms
    with pytest.raises(ValueError, match="needs the target model's"):
        ours(term, rows(0), None)


@pytest.mark.parametrize(
    ("method", "needs_retain", "needs_reference"),
    [("ga", False, False), ("gd", True, False), ("npo", False, True), ("nll", False, False)],
)
def test_what_an_objective_needs(method: str, needs_retain: bool, needs_reference: bool) -> None:
    made = objectives.make(method, Settings())
    assert (made.needs_retain, made.needs_reference) == (needs_retain, needs_reference)


def test_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown method 'gaa'"):
        objectives.make("gaa", Settings())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_token_losses_are_fp32_zero_off_the_labels(dtype: torch.dtype) -> None:
    batch = rows(1)
    collated = scoring.collate([example for example, _ in batch], pad=0)
    logits = torch.randn(*collated["labels"].shape, WORDS, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = scoring.token_losses(logits, collated["labels"])
    assert found.dtype == torch.float32
    for row, (example, _) in enumerate(batch):
        expected = torch.zeros(found.shape[1], dtype=torch.float64)
        expected[example.answer_start - 1 : len(example.input_ids) - 1] = torch.stack(
            row_losses(example, logits[row].double())
        )
        assert torch.allclose(found[row].double(), expected, atol=1e-5)
        assert not found[row][expected == 0].any()
