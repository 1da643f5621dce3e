"""A model's greedy answers as texts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch.nn import Embedding

from trainables.common.tokenized_row import Example
from trainables.config.settings import CACHED_TOKENS
from trainables.inference import generation
from trainables.inference.padded_batch import padding_token


def generate(
    network: Any,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    *,
    ends: Collection[int] = (),
    token_budget: int,
    new_tokens: int | Sequence[int],
    total: bool = False,
    scored: Sequence[tuple[Example, Sequence[bool]]] = (),
    cut_loops: bool = False,
) -> list[str]:
    """Return greedy continuations of prompts' ids, special tokens removed.

    An answer ends at the ends of the tokenizer, of the model's generation settings, and at `ends`. `new_tokens`: of
    all prompts or of each. `total`: it counts the prompt, too. `scored`: examples and their labels' hits, known up to
    the first miss. `cut_loops`: an answer ends where it goes round.
    """
    encoded = [tuple(ids) for ids in prompts]
    configured = network.generation_config.eos_token_id
    named = configured if isinstance(configured, list) else [configured]
    most = [new_tokens] * len(encoded) if isinstance(new_tokens, int) else new_tokens
    limits = [max(limit - len(ids), 0) if total else limit for limit, ids in zip(most, encoded, strict=True)]
    positions = None
    if any(isinstance(one, Embedding) and one is not network.get_input_embeddings() for one in network.modules()):
        positions = network.config.max_position_embeddings  # learnt ones, of which there are no more
        limits = [min(limit, max(positions - len(ids), 0)) for limit, ids in zip(limits, encoded, strict=True)]
    continued = generation.continue_prompts(
        network,
        encoded,
        limits,
        ends={*ends, *named, tokenizer.eos_token_id} - {None},
        pad=padding_token(tokenizer),
        token_budget=CACHED_TOKENS * token_budget,
        positions=positions,
        cut_loops=cut_loops,
        known=[_leading_labels(ids, *pair) for ids, pair in zip(encoded, scored, strict=True)] if scored else None,
    )
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in continued]


def _leading_labels(prompt: tuple[int, ...], example: Example, hits: Sequence[bool]) -> tuple[int, ...]:
    """Return the labels before the first miss: none if the prompt is another, as where a token has a part of both."""
    start = example.answer_start
    known = start + [*hits, False].index(False)
    return example.input_ids[start:known] if example.input_ids[:start] == prompt else ()
