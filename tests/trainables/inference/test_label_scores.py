"""Scores of batches against each example by itself: one row, full logits, float64 log-softmax."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.families import FAMILIES, VOCABULARY, PassCounter, answer_groups, losses_and_hits, network, score
from trainables.common.tokenized_row import Example

LLAMA = network("Llama")
IDS = st.lists(st.integers(3, 6), min_size=1, max_size=8)


def check_scores(model: Any, groups: list[list[Example]], budget: int) -> None:
    for example, scores in zip(chain(*groups), score(model, chain(*groups), budget), strict=True):
        expected, hits = losses_and_hits(model, example)
        assert scores.hits == hits
        assert scores.losses == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert scores.total_loss == pytest.approx(sum(expected), rel=1e-5)


@pytest.mark.parametrize("family", [*FAMILIES, "Gemma2", "Afmoe"])
def test_scores_are_those_of_each_example_alone(family: str) -> None:
    model, groups = network(family), answer_groups(0)
    for budget in (1, 60, 10**6):
        check_scores(model, [*groups, []], budget)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=4), max_size=4), st.integers(1, 60))
def test_any_groups_are_scored_as_each_example_alone(groups_of_pairs: list[Any], budget: int) -> None:
    check_scores(
        LLAMA, [[Example((*ids, *more), len(ids)) for ids, more in group] for group in groups_of_pairs], budget
    )


def test_passes_keep_to_the_budget_and_the_head_sees_labels_alone() -> None:
    groups = answer_groups(2, groups=20)
    with PassCounter(LLAMA) as counted:
        score(LLAMA, chain(*groups), 200)
    assert max(rows * tokens for rows, tokens in counted.passes) <= 200
    assert counted.logits == sum(example.answer_tokens for example in {*chain(*groups)})


def test_examples_longer_than_a_window_and_other_kinds_of_models() -> None:
    torch.manual_seed(0)
    state_space = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4)
    for model in (network("Mistral", sliding_window=8), transformers.MambaForCausalLM(state_space).eval()):
        groups = [[example for example in group if len(example.input_ids) > 8] for group in answer_groups(3)]
        check_scores(model, groups, 300)
