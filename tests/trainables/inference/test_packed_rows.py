"""Examples that begin alike against each of them by itself: one row, full logits, float64 log-softmax."""

from __future__ import annotations

import copy
from itertools import chain
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.families import FAMILIES, PAD, VOCABULARY, PassCounter, answer_groups, losses_and_hits, network
from trainables.common.tokenized_row import Example
from trainables.inference import kv_cache, packed_rows, scoring
from trainables.inference.padded_batch import pad_rows

LLAMA = network("Llama")
IDS = st.lists(st.integers(3, 6), min_size=1, max_size=8)


def check_scores(model: Any, groups: list[list[Example]], budget: int) -> None:
    """Compare the losses of each example, and the hits of each group's first one, with those of it alone."""
    found = scoring.score_labels(model, groups, pad=PAD, token_budget=budget)
    firsts = {group[0] for group in groups if group}
    for example, scores in zip(chain(*groups), chain(*found), strict=True):
        expected, hits = losses_and_hits(model, example)
        assert scores.hits == (hits if example in firsts else [])
        assert scores.losses == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert scores.total_loss == pytest.approx(sum(expected), rel=1e-5)


@pytest.mark.parametrize("family", [*FAMILIES, "Gemma2", "Afmoe"])
def test_scores_with_a_shared_beginning_are_those_of_each_alone(family: str) -> None:
    model, groups = network(family), answer_groups(0)
    for budget in (1, 60, 10**6):
        check_scores(model, [*groups, []], budget)
    check_scores(model, [[example] for group in answer_groups(1) for example in group], 80)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=4), max_size=4), st.integers(1, 60))
def test_any_groups_are_scored_as_each_example_alone(groups_of_pairs: list[Any], budget: int) -> None:
    """Of four different tokens: beginnings that are shared by chance, over the start of the answer, or not at all."""
    check_scores(
        LLAMA, [[Example((*ids, *more), len(ids)) for ids, more in group] for group in groups_of_pairs], budget
    )


def test_the_beginning_is_computed_once_and_logits_for_labels_alone() -> None:
    """A question of 30 tokens and seven answers of three: 30 positions, seven times two, and logits at 15 of them."""
    question = tuple(range(3, 33))
    group = [Example((*question, 40 + k, 41 + k, 42 + k), 30) for k in range(7)]
    with PassCounter(LLAMA) as counted:
        scoring.score_labels(LLAMA, [group], pad=PAD, token_budget=10**6)
    assert counted.passes == [(1, 44)]
    assert counted.logits == 15
    assert LLAMA.config._attn_implementation == "sdpa"


def test_attention_is_as_before_where_a_pass_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_rows, "read_logits", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scoring.score_labels(LLAMA, answer_groups(0), pad=PAD, token_budget=100)
    assert LLAMA.config._attn_implementation == "sdpa"


def test_a_model_with_parts_keeps_the_attention_of_each() -> None:
    """One string would be given to all of them, to have and to come back to."""
    pictures = transformers.SiglipVisionConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=14)
    config = transformers.LlavaConfig(text_config=copy.deepcopy(LLAMA.config), vision_config=pictures)
    model = transformers.LlavaForConditionalGeneration(config).eval()
    model.set_attn_implementation({"text_config": "eager"})
    with packed_rows.packing(model, 10) as packed:
        assert not packed
    attentions = {name: getattr(model.config, name)._attn_implementation for name in model.config.sub_configs}
    assert attentions == {"text_config": "eager", "vision_config": "sdpa"}


def test_no_pass_is_of_more_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted as attention has it: a row for each example."""
    rows: list[int] = []
    read = packed_rows.read_logits

    def count(model: Any, packed: packed_rows.PackedRows) -> torch.Tensor:
        rows.append(sum(part.rows.numel() for part in packed.attention))
        return read(model, packed)

    monkeypatch.setattr(packed_rows, "read_logits", count)
    scoring.score_labels(LLAMA, answer_groups(2, groups=20), pad=PAD, token_budget=200)
    assert 0 < max(rows) <= 200


def test_examples_longer_than_a_window_and_other_kinds_of_models_are_read_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed_rows, "read_logits", lambda *_: pytest.fail("a beginning was shared"))
    torch.manual_seed(0)
    state_space = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4)
    for model in (network("Mistral", sliding_window=8), transformers.MambaForCausalLM(state_space).eval()):
        groups = [[example for example in group if len(example.input_ids) > 8] for group in answer_groups(3)]
        check_scores(model, groups, 300)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_padding_on_the_left_changes_no_logit_and_leaves_none_that_is_not_finite(attention: str) -> None:
    """Logits at real tokens are those of a row alone; at padding, whose attention has nothing to see, any number."""
    prompts = [[5, 6, 7, 8, 9, 10], [11], [12, 13, 14]]
    for family in ("Llama", "Mistral", "OPT"):
        model = network(family, attn_implementation=attention)
        input_ids, mask = pad_rows(prompts, PAD, left=True)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        with torch.no_grad():
            layers, found = kv_cache.read_tokens(model, [], input_ids, mask, positions, 0)
            alone = [model(input_ids=torch.tensor([ids])).logits[0] for ids in prompts]
        assert all(part.isfinite().all() for part in (found.logits, *(layer.values for layer in layers)))
        for row, expected in zip(found.logits, alone, strict=True):
            assert torch.allclose(row[-len(expected) :], expected, atol=1e-5)
