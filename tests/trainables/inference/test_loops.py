"""Answers that go round are cut at the same place whatever batch they are in; others are left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support import tiny
from trainables.inference import generation


@pytest.mark.parametrize("period", [1, 3, 8, 9])
def test_a_continuation_ends_where_it_goes_round(period: int) -> None:
    """By hand: the last 24 ids repeat every `period` ids, 24 ids after the beginning."""
    loop = (list(range(10, 10 + period)) * 20)[:60]
    begun = [1, 2, 3, 4, 5]
    expected = 60 + len(begun) if period > generation.LONGEST_LOOP else len(begun) + generation.LOOPED
    assert generation.cut_loop([*begun, *loop]) == [*begun, *loop][:expected]
    assert generation.cut_loop(loop[:23]) == loop[:23]


def test_batches_and_budgets_leave_cut_continuations_as_they_are() -> None:
    """A model that goes by the last id alone soon goes round; each row is the beginning of what it would have said."""
    network: Any = tiny.network()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.zero_()
    prompts = [[5, 6, 7], [9, 8], [11, 3, 4, 2, 12], [7]]

    def run(rows: list[list[int]], budget: int, *, cut: bool) -> list[list[int]]:
        limits = [60] * len(rows)
        return generation.continue_prompts(network, rows, limits, ends=(), pad=0, token_budget=budget, cut_loops=cut)

    whole, cut = run(prompts, 8192, cut=False), run(prompts, 8192, cut=True)
    assert cut == [generation.cut_loop(ids) for ids in whole]
    assert len(set(map(len, cut))) > 1
    assert max(map(len, cut)) < 60
    assert cut == [found for prompt in prompts for found in run([prompt], 256, cut=True)]
