"""Rows that move in and out of a batch against transformers' `generate` on one row at a time, in fp32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import tiny
from trainables.inference import generation, kv_cache

END, PAD, VOCABULARY = 1, 2, 60
NEVER = VOCABULARY
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": END,
    "pad_token_id": PAD,
    "initializer_range": 0.5,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"num_key_value_heads": 2, "sliding_window": 200},
    "Phi": {},
    "GPTNeoX": {},
    "Qwen2": {"num_key_value_heads": 2},
    "OPT": {"ffn_dim": 48, "word_embed_proj_dim": 32},
}
"""Those whose rows move, and what else makes them small. Gemma's soft cap is in test_prefixes."""


def network(family: str, **more: Any) -> Any:
    torch.manual_seed(3)
    config = getattr(transformers, f"{family}Config")(**SHAPE | FAMILIES.get(family, {}) | more)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: Any) -> Any:
    return network(request.param)


@torch.no_grad()
def alone(network: Any, prompt: list[int], limit: int, end: int = END, pad: int = PAD) -> list[int]:
    """By transformers' `generate`, one row, without padding."""
    if limit == 0:
        return []
    ids = torch.tensor([prompt])
    whole = network.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=limit,
        eos_token_id=end,
        pad_token_id=pad,
    )[0, len(prompt) :].tolist()
    return whole[: whole.index(end)] if end in whole else whole


def ragged(count: int, seed: int) -> tuple[list[list[int]], list[int]]:
    """Prompts of 1 to 40 tokens, limits of 0 to 30."""
    draw = torch.Generator().manual_seed(seed)

    def below(least: int, most: int, size: int = 1) -> list[int]:
        return torch.randint(least, most, (size,), generator=draw).tolist()

    prompts = [below(3, VOCABULARY, below(1, 41)[0]) for _ in range(count)]
    return prompts, below(0, 31, count)


def moved(network: Any, *arguments: Any, budget: int, end: int = END, pad: int = PAD) -> list[list[int]]:
    return generation.continuations(network, *arguments, end=end, pad=pad, token_budget=budget)


def frequent(network: Any, prompts: list[list[int]]) -> int:
    """A token that many of the rows come to after a while: as the end it ends them at different lengths."""
    said = [token for prompt in prompts for token in set(alone(network, prompt, 20, end=NEVER)[3:])]
    return max(set(said), key=said.count)


def test_rows_end_one_by_one_as_they_do_alone(family: Any) -> None:
    prompts, limits = ragged(24, seed=0)
    end = frequent(family, prompts)
    expected = [alone(family, prompt, limit, end) for prompt, limit in zip(prompts, limits, strict=True)]
    assert len({len(ids) for ids in expected}) > 5
    assert any(0 < len(ids) < limit for ids, limit in zip(expected, limits, strict=True))
    assert any(len(ids) == limit for ids, limit in zip(expected, limits, strict=True) if limit)
    for budget in (1, 150, 10**6):
        assert moved(family, prompts, limits, budget=budget, end=end) == expected


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=30), st.integers(0, 12)), max_size=9
    ),
    end=st.integers(0, VOCABULARY - 1),
    budget=st.integers(1, 300),
)
def test_any_rows_are_continued_as_they_are_alone(rows: list[Any], end: int, budget: int) -> None:
    model = LLAMA
    prompts, limits = [list(ids) for ids, _ in rows], [limit for _, limit in rows]
    expected = [alone(model, ids, limit, end) for ids, limit in rows]
    assert moved(model, prompts, limits, budget=budget, end=end) == expected


LLAMA = network("Llama")


def test_padding_with_the_end_token_ends_nothing(family: Any) -> None:
    prompts, limits = ragged(8, seed=1)
    end = frequent(family, prompts)
    expected = [alone(family, prompt, limit, end, pad=end) for prompt, limit in zip(prompts, limits, strict=True)]
    assert moved(family, prompts, limits, budget=300, end=end, pad=end) == expected


def test_only_the_tokenizers_end_ends_a_row_whatever_the_model_lists(family: Any) -> None:
    """As in transformers' `generate` that is told an end."""
    prompts, limits = ragged(6, seed=2)
    before = moved(family, prompts, limits, budget=300)
    listed = family.generation_config.eos_token_id
    family.generation_config.eos_token_id = list(range(VOCABULARY))
    try:
        assert moved(family, prompts, limits, budget=300) == before
        assert before == [alone(family, ids, limit) for ids, limit in zip(prompts, limits, strict=True)]
    finally:
        family.generation_config.eos_token_id = listed


class Counted:
    """Positions that a model's layers computed, and heads' rows."""

    def __init__(self, network: Any) -> None:
        self.passes: list[tuple[int, int]] = []
        self.logits = 0
        body = network.get_input_embeddings()
        self.handles = [
            body.register_forward_hook(lambda _, __, found: self.passes.append(tuple(found.shape[:2]))),
            network.get_output_embeddings().register_forward_hook(self._head),
        ]

    def _head(self, _: Any, __: Any, found: torch.Tensor) -> None:
        self.logits += found.numel() // found.shape[-1]

    def close(self) -> None:
        for handle in self.handles:
            handle.remove()


def test_ended_rows_and_prompts_cost_nothing_more() -> None:
    """One row of 60 tokens among 40 of one: `generate` would compute 41 x 60 positions and as many logits."""
    model = network("Llama")
    counted = Counted(model)
    moved(model, [[5, 6, 7]] * 41, [60] + [1] * 40, budget=10**6, end=NEVER)
    counted.close()
    assert counted.passes[0] == (41, 3)
    assert counted.passes[1:] == [(1, 1)] * 59
    assert counted.logits == 41 + 59


def test_free_places_are_taken_up_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 places for 64 rows of 1 to 16 tokens: about as many steps as tokens over places."""
    model, step = network("Llama"), generation._Batch.step
    cached: list[int] = []
    monkeypatch.setattr(generation._Batch, "step", lambda batch: (step(batch), cached.append(batch.mask.numel())))
    limits = [1 + k % 16 for k in range(64)]
    counted = Counted(model)
    moved(model, [[5, 6, 7]] * 64, limits, budget=16 * 19, end=NEVER)
    counted.close()
    steps = [rows for rows, tokens in counted.passes if tokens == 1]
    assert max(cached) <= 16 * 19
    assert len(steps) < 1.5 * sum(limits) / 16
    assert sum(steps) < 1.3 * sum(limits)


def test_wide_prompts_and_long_answers_together_keep_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has the columns of its widest prompt and of its longest answer, which may be of different rows."""
    model, step = network("Llama"), generation._Batch.step
    cached: list[int] = []
    monkeypatch.setattr(generation._Batch, "step", lambda batch: (step(batch), cached.append(batch.mask.numel())))
    draw = torch.Generator().manual_seed(4)
    prompts = [torch.randint(3, VOCABULARY, (40 if k % 3 else 2,), generator=draw).tolist() for k in range(24)]
    limits = [2 if k % 3 else 40 for k in range(24)]
    expected = [alone(model, prompt, limit, NEVER) for prompt, limit in zip(prompts, limits, strict=True)]
    assert moved(model, prompts, limits, budget=8 * 42, end=NEVER) == expected
    assert max(cached) <= 8 * 42


def test_a_row_that_has_ended_never_goes_beyond_the_models_positions() -> None:
    """OPT has an embedding a position, and none for a row that waits for its place to be given on."""
    model = network("OPT", max_position_embeddings=48)
    draw = torch.Generator().manual_seed(4)
    shapes = [(44, 4)] * 2 + [(6, 42)] * 12
    prompts = [torch.randint(3, VOCABULARY, (width,), generator=draw).tolist() for width, _ in shapes]
    limits = [limit for _, limit in shapes]
    expected = [alone(model, prompt, limit, NEVER) for prompt, limit in zip(prompts, limits, strict=True)]
    assert moved(model, prompts, limits, budget=10**5, end=NEVER) == expected


def test_the_same_rows_twice_are_the_same_bit_for_bit(family: Any) -> None:
    prompts, limits = ragged(12, seed=4)
    assert moved(family, prompts, limits, budget=200) == moved(family, prompts, limits, budget=200)


def test_rows_beyond_a_sliding_window_are_left_to_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network("Mistral", sliding_window=16)
    prompts, limits = ragged(6, seed=5)
    monkeypatch.setattr(generation, "_moving", lambda *_: pytest.fail("rows moved beyond the window"))
    expected = [alone(model, prompt, limit) for prompt, limit in zip(prompts, limits, strict=True)]
    assert moved(model, prompts, limits, budget=300) == expected


def test_a_model_with_a_penalty_is_left_to_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network("Llama")
    prompts, limits = ragged(6, seed=6)
    plain = moved(model, prompts, limits, budget=1)
    model.generation_config.repetition_penalty = 5.0
    monkeypatch.setattr(generation, "_moving", lambda *_: pytest.fail("the penalty was passed over"))
    expected = [alone(model, prompt, limit) for prompt, limit in zip(prompts, limits, strict=True)]
    assert moved(model, prompts, limits, budget=1) == expected != plain


def test_which_models_keep_keys_and_values_of_the_past_alone() -> None:
    assert kv_cache.reach(tiny.network()) == float("inf")
    assert kv_cache.reach(network("Mistral")) == 200
    state_space = transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, state_size=2)
    )
    alibi = transformers.BloomForCausalLM(transformers.BloomConfig(vocab_size=20, hidden_size=8, n_layer=1, n_head=2))
    assert kv_cache.reach(state_space) == kv_cache.reach(alibi) == 0


def test_a_model_without_positions_is_left_to_transformers() -> None:
    torch.manual_seed(0)
    config = transformers.BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=2)
    model = transformers.BloomForCausalLM(config).eval()
    prompts, limits = ragged(5, seed=7)
    expected = [alone(model, prompt, limit) for prompt, limit in zip(prompts, limits, strict=True)]
    assert moved(model, prompts, limits, budget=120) == expected
