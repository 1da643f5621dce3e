"""Examples that begin alike against each of them by itself: one row, full logits, float64 log-softmax."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import tiny
from tests.support.families import FAMILIES, PAD, VOCABULARY, PassCounter, answer_groups, losses_alone, network
from trainables.common.tokens import Example
from trainables.inference import kv_cache, scoring, shared_prefix


@pytest.fixture(scope="module", params=[*FAMILIES, "Gemma2"])
def family(request: Any) -> Any:
    return network(request.param)


def losses_of(network: Any, groups: list[list[Example]], budget: int) -> list[list[float]]:
    return [answers.losses for answers in scoring.score_answers(network, groups, pad=PAD, token_budget=budget)]


@pytest.mark.parametrize("budget", [1, 60, 10**6])
def test_losses_with_a_shared_beginning_are_those_of_each_alone(family: Any, budget: int) -> None:
    groups = answer_groups(0)
    found = losses_of(family, groups, budget)
    expected = [[sum(losses_alone(family, example)) for example in group] for group in groups]
    for losses, truth in zip(found, expected, strict=True):
        assert losses == pytest.approx(truth, rel=1e-5)


LLAMA = network("Llama")
IDS = st.lists(st.integers(3, 6), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=4), max_size=4),
    st.integers(1, 60),
)
def test_any_groups_are_scored_as_each_example_alone(groups_of_pairs: list[Any], budget: int) -> None:
    """Of four different tokens: beginnings that are shared by chance, over the start of the answer, or not at all."""
    groups = [[Example((*ids, *answer), len(ids)) for ids, answer in group] for group in groups_of_pairs]
    found = losses_of(LLAMA, groups, budget)
    for group, losses in zip(groups, found, strict=True):
        assert losses == pytest.approx([sum(losses_alone(LLAMA, example)) for example in group], rel=1e-5)


def test_scores_of_labels_are_those_of_each_alone(family: Any) -> None:
    examples = [example for group in answer_groups(1) for example in group]
    found = scoring.label_scores(family, examples, pad=PAD, token_budget=80)
    for example, scores in zip(examples, found, strict=True):
        assert scores.losses == pytest.approx(losses_alone(family, example), rel=1e-5, abs=1e-6)
        guesses = family(input_ids=torch.tensor([example.input_ids])).logits[0].argmax(-1).tolist()
        assert scores.hits == [
            guesses[place - 1] == example.input_ids[place]
            for place in range(example.answer_start, len(example.input_ids))
        ]


def test_the_beginning_is_computed_once_and_logits_for_labels_alone() -> None:
    """A question of 30 tokens and seven answers of three: 29 positions, and seven times four; 21 logits."""
    question = tuple(range(3, 33))
    group = [Example((*question, 40 + k, 41 + k, 42 + k), 30) for k in range(7)]
    with PassCounter(LLAMA) as counted:
        scoring.score_answers(LLAMA, [group], pad=PAD, token_budget=10**6)
    assert counted.passes == [(1, 29), (7, 4)]
    assert counted.logits == 21


def test_the_trunk_ends_before_the_token_before_any_label() -> None:
    assert shared_prefix.trunk([Example((5, 6, 7, 8), 2), Example((5, 6, 7, 9), 3)]) == 1
    assert shared_prefix.trunk([Example((5, 6, 7, 8), 3), Example((5, 9, 7, 8), 3)]) == 1
    assert shared_prefix.trunk([Example((5, 6, 7), 2), Example((4, 6, 7), 2)]) == 0


@pytest.mark.parametrize("budget", [200, 10**6])
def test_no_pass_keeps_more_than_the_budget(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    """Columns of a pass: those of the beginnings, as often as rows use them, and of what is read."""
    columns: list[int] = []
    read = kv_cache.read
    monkeypatch.setattr(kv_cache, "read", lambda *given: (columns.append(given[3].numel()), read(*given))[1])
    scoring.score_answers(LLAMA, answer_groups(2, groups=20), pad=PAD, token_budget=budget)
    assert 0 < max(columns) <= budget


def test_examples_longer_than_a_window_and_other_kinds_of_models_are_read_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv_cache, "read", lambda *_: pytest.fail("a beginning was shared"))
    torch.manual_seed(0)
    state_space = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4)
    for model in (network("Mistral", sliding_window=8), transformers.MambaForCausalLM(state_space).eval()):
        groups = [[example for example in group if len(example.input_ids) > 8] for group in answer_groups(3)]
        found = losses_of(model, groups, 300)
        for group, losses in zip(groups, found, strict=True):
            assert losses == pytest.approx([sum(losses_alone(model, example)) for example in group], rel=1e-4)


def test_the_same_groups_twice_are_the_same_bit_for_bit(family: Any) -> None:
    first, again = (scoring.score_answers(family, answer_groups(4), pad=PAD, token_budget=100) for _ in range(2))
    assert first == again


def test_a_head_is_as_it_was_after_an_error() -> None:
    model = tiny.network()
    with pytest.raises(RuntimeError, match="stop"), kv_cache.chosen_positions(model, lambda hidden: hidden[:, :0]):
        raise RuntimeError("stop")
    assert model(input_ids=torch.tensor([[3, 4]])).logits.shape == (1, 2, 259)
