"""Ranks share an evaluation and know all results and errors."""

from itertools import chain
from typing import Any

import pytest
import torch

from tests.support import families, ranks
from tests.support.families import END, NEVER
from trainables.common.errors import InputError
from trainables.inference.passes import run_items_in_passes, run_once_for_all_ranks, split_items_among_ranks


def score_and_generate(model: Any, groups: Any, prompts: Any, limits: Any) -> Any:
    scores = families.score(model, chain(*groups), 100)
    return scores, families.generate(model, prompts, limits, budget=400, end=END)


def check_shared_passes(model: Any) -> None:
    """On one of two ranks: the losses and texts of the model alone, for about half the tokens."""
    groups, (prompts, limits) = families.answer_groups(5, groups=60), families.ragged_prompts(15, seed=8)
    expected = score_and_generate(model, groups, prompts, limits)
    tokens: list[int] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _, __, out: tokens.append(out[..., 0].numel()))
    with split_items_among_ranks(together=True):
        found = score_and_generate(model, groups, prompts, limits)
        few = families.generate(model, prompts[:1], [3], budget=400, end=NEVER)
    shared = sum(tokens)
    with split_items_among_ranks(together=False):
        score_and_generate(model, groups, prompts, limits)
    hook.remove()
    for one, other in zip(found[0], expected[0], strict=True):
        assert one.losses == pytest.approx(other.losses, rel=1e-4, abs=1e-5)
        assert one.hits == other.hits
    assert found[1] == expected[1]
    assert few == families.generate(model, prompts[:1], [3], budget=400, end=NEVER)
    assert 0 < shared < 0.6 * (sum(tokens) - shared)


def check_shared_errors(rank: int) -> None:
    """Rank 1 runs out of memory in its part; then both are told what rank 0 finds, and that it finds nothing."""

    def full(numbers: Any) -> dict[int, int]:
        if rank == 1:
            raise torch.OutOfMemoryError("no room")
        return dict.fromkeys(numbers, 0)

    def nothing() -> None:
        raise InputError("no such task")

    kind, words = (RuntimeError, "rank 1 failed in an evaluation: OutOfMemoryError: no room")
    if rank == 1:
        kind, words = (torch.OutOfMemoryError, "no room")
    with split_items_among_ranks(together=True):
        with pytest.raises(kind, match=words):
            run_items_in_passes("", full, {0: 1, 1: 1}, 1)
        assert run_once_for_all_ranks(lambda: rank) == 0
        with pytest.raises(InputError if rank == 0 else RuntimeError, match="no such task"):
            run_once_for_all_ranks(nothing)


def run_rank(rank: int) -> None:
    check_shared_passes(families.network("Llama"))
    check_shared_errors(rank)


def test_ranks_share_the_passes_and_know_all_results_and_errors() -> None:
    """An error on one rank is every rank's at once: they wait for each other for hours in a large evaluation."""
    ranks.start(run_rank, (), 2)
