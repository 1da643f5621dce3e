"""Rows that move in and out of a batch against transformers' `generate` on one row at a time, in fp32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.families import (
    FAMILIES,
    NEVER,
    VOCABULARY,
    PassCounter,
    frequent_token,
    generate,
    generate_each_alone,
    network,
    ragged_prompts,
)
from trainables.common.errors import InputError
from trainables.inference import generation

LLAMA = network("Llama")


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_end_one_by_one_as_they_do_alone(family: str) -> None:
    """Also where rows are padded with the end token."""
    model = network(family)
    prompts, limits = ragged_prompts(16, seed=0)
    end = frequent_token(model, prompts)
    expected = generate_each_alone(model, prompts, limits, end)
    assert len({len(ids) for ids in expected}) > 5
    assert any(0 < len(ids) < limit for ids, limit in zip(expected, limits, strict=True))
    assert any(len(ids) == limit for ids, limit in zip(expected, limits, strict=True) if limit)
    for budget in (150, 10**6):
        assert generate(model, prompts, limits, budget=budget, end=end) == expected
    assert generate(model, prompts, limits, budget=300, end=end, pad=end) == expected


@settings(max_examples=10, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=30), st.integers(0, 12)), max_size=9
    ),
    end=st.integers(0, VOCABULARY - 1),
    budget=st.integers(1, 300),
    room=st.integers(1, 12),
)
def test_any_rows_are_continued_as_they_are_alone(rows: list[Any], end: int, budget: int, room: int) -> None:
    prompts, limits = [list(ids) for ids, _ in rows], [limit for _, limit in rows]
    expected = generate_each_alone(LLAMA, prompts, limits, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "ROOM", room)
        assert generate(LLAMA, prompts, limits, budget=budget, end=end) == expected


def test_only_the_tokenizers_end_ends_a_row_whatever_the_model_lists() -> None:
    """As in transformers' `generate` that is given an end."""
    model = network("Llama")
    prompts, limits = ragged_prompts(6, seed=2)
    before = generate(model, prompts, limits, budget=300)
    model.generation_config.eos_token_id = list(range(VOCABULARY))
    assert generate(model, prompts, limits, budget=300) == before == generate_each_alone(model, prompts, limits)


def test_ended_rows_and_prompts_cost_nothing_more() -> None:
    """One row of 60 tokens among 40 of one: `generate` would compute 41 x 60 positions and as many logits."""
    with PassCounter(LLAMA) as counted:
        generate(LLAMA, [[5, 6, 7]] * 41, [60] + [1] * 40, budget=10**6, end=NEVER)
    assert counted.passes[0] == (41, 3)
    assert counted.passes[1:] == [(1, 1)] * 59
    assert counted.logits == 41 + 59


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of the cache after each step, in tokens."""
    sizes: list[int] = []
    step = generation._Batch.step
    monkeypatch.setattr(generation._Batch, "step", lambda batch: (step(batch), sizes.append(batch.mask.numel())))
    return sizes


def test_free_places_are_taken_up_within_the_budget(cached: list[int]) -> None:
    """16 places for 64 rows of 1 to 16 tokens: about as many steps as tokens over places."""
    limits = [1 + k % 16 for k in range(64)]
    with PassCounter(LLAMA) as counted:
        generate(LLAMA, [[5, 6, 7]] * 64, limits, budget=16 * 19, end=NEVER)
    steps = [rows for rows, tokens in counted.passes if tokens == 1]
    assert max(cached) <= 16 * 19
    assert len(steps) < 1.5 * sum(limits) / 16
    assert sum(steps) < 1.3 * sum(limits)


def random_prompts(widths: list[int]) -> list[list[int]]:
    generator = torch.Generator().manual_seed(4)
    return [torch.randint(3, VOCABULARY, (width,), generator=generator).tolist() for width in widths]


def test_wide_prompts_and_long_answers_together_keep_to_the_budget(cached: list[int]) -> None:
    """A batch has the columns of its widest prompt and of its longest answer, which may be of different rows."""
    prompts = random_prompts([40 if k % 3 else 2 for k in range(24)])
    limits = [2 if k % 3 else 40 for k in range(24)]
    expected = generate_each_alone(LLAMA, prompts, limits, NEVER)
    assert generate(LLAMA, prompts, limits, budget=8 * 42, end=NEVER) == expected
    assert max(cached) <= 8 * 42


def test_rows_that_outgrow_the_budget_leave_and_come_back(cached: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows that may have 60 tokens begin where there is room for four of 64."""
    read, add = [], generation._Batch.add
    monkeypatch.setattr(
        generation._Batch, "add", lambda batch, rows, *more: (read.extend(rows), add(batch, rows, *more))
    )
    monkeypatch.setattr(generation, "ROOM", 16)
    prompts = random_prompts([4] * 10)
    assert generate(LLAMA, prompts, [60] * 10, budget=4 * 64, end=NEVER) == generate_each_alone(
        LLAMA, prompts, [60] * 10, NEVER
    )
    assert max(cached) <= 4 * 64
    assert len(set(read)) == 10 < len(read)


def test_one_wide_prompt_keeps_no_narrow_ones_waiting() -> None:
    """40 rows of 5 to 14 and 20 tokens, ten at a time, then one of 190: with it, no two have room."""
    widths = [5 + k % 10 for k in range(40)]
    with PassCounter(LLAMA) as counted:
        generate(LLAMA, random_prompts([190, *widths]), [20] * 41, budget=10 * 34, end=NEVER)
    assert sum(tokens == 1 for _, tokens in counted.passes) < 1.3 * 20 * 5


def test_rows_of_like_width_are_in_a_batch_together(cached: list[int]) -> None:
    """Prompts of 4 to 35 tokens whose rows all come to 40, in any order: few columns of a narrow row are pads."""
    prompts = random_prompts([4 + 11 * k % 32 for k in range(64)])
    limits = [40 - len(prompt) for prompt in prompts]
    generate(LLAMA, prompts, limits, budget=8 * 40, end=NEVER)
    tokens = sum(len(prompt) + k for prompt, limit in zip(prompts, limits, strict=True) for k in range(1, limit))
    assert sum(cached) < 1.2 * tokens


def test_a_row_that_has_ended_never_goes_beyond_the_models_positions() -> None:
    """OPT has an embedding a position, and none for a row that waits until its place is free."""
    model = network("OPT", max_position_embeddings=48)
    shapes = [(44, 4)] * 2 + [(6, 42)] * 12
    prompts, limits = random_prompts([width for width, _ in shapes]), [limit for _, limit in shapes]
    expected = generate_each_alone(model, prompts, limits, NEVER)
    assert generate(model, prompts, limits, budget=10**5, end=NEVER) == expected


def without_positions() -> Any:
    torch.manual_seed(0)
    config = transformers.BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=2)
    return transformers.BloomForCausalLM(config).eval()


def test_other_models_are_left_to_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with rows beyond a sliding window, with a penalty or without positions."""
    prompts, limits = ragged_prompts(6, seed=5)
    monkeypatch.setattr(generation, "_decode_moving_rows", lambda *_: pytest.fail("rows moved"))
    penalised = network("Llama")
    penalised.generation_config.repetition_penalty = 5.0
    for model in (network("Mistral", sliding_window=16), penalised, without_positions()):
        assert generate(model, prompts, limits, budget=300) == generate_each_alone(model, prompts, limits)
    assert generate_each_alone(penalised, prompts, limits) != generate_each_alone(LLAMA, prompts, limits)


@torch.no_grad()
def sample_alone(model: Any, prompt: list[int], limit: int, end: int, numbers: list[float]) -> list[int]:
    """Nucleus sampling token by token, without a cache; `numbers`: a uniform one for each place of a token."""
    ids = list(prompt)
    while len(ids) < len(prompt) + limit:
        shares = model(input_ids=torch.tensor([ids])).logits[0, -1].double().softmax(-1).tolist()
        nucleus: list[int] = []
        for token in sorted(range(VOCABULARY), key=lambda token: -shares[token]):
            nucleus.append(token)
            if sum(shares[token] for token in nucleus) >= 0.9:
                break
        left = numbers[len(ids)] * sum(shares[token] for token in nucleus)
        while (left := left - shares[nucleus[0]]) >= 0:
            nucleus.pop(0)
        if nucleus[0] == end:
            break
        ids.append(nucleus[0])
    return ids[len(prompt) :]


@pytest.mark.parametrize("family", ["Llama", "OPT"])
def test_sampled_rows_depend_on_no_other_row(family: str) -> None:
    model = network(family)
    prompts, limits = ragged_prompts(12, seed=7)
    draws = torch.rand(12, 71, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    end = frequent_token(model, prompts)
    rows = zip(prompts, limits, draws.tolist(), strict=True)
    expected = [sample_alone(model, prompt, limit, end, numbers) for prompt, limit, numbers in rows]
    settings: dict[str, Any] = {"ends": {end}, "pad": 2, "draws": draws}
    for budget in (150, 10**6):
        assert generation.continue_prompts(model, prompts, limits, token_budget=budget, **settings) == expected
    assert expected != generate(model, prompts, limits, budget=300, end=end)
    assert any(0 < len(ids) < limit for ids, limit in zip(expected, limits, strict=True))


def test_a_model_whose_rows_cannot_move_is_not_sampled() -> None:
    with pytest.raises(InputError, match="too long to sample for MistralForCausalLM"):
        generation.continue_prompts(
            *(network("Mistral", sliding_window=16), [[5] * 9], [8]),
            ends={1},
            pad=2,
            token_budget=99,
            draws=torch.zeros(1, 17),
        )
