"""A model's answers, greedy or sampled, as texts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch

from trainables.common.tokenized_row import Example
from trainables.config.settings import CACHED_PER_PASS
from trainables.inference import generation
from trainables.inference.padded_batch import pad_of


def generate(
    network: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    token_budget: int,
    new_tokens: int,
    total: bool = False,
    scored: Sequence[tuple[Example, Sequence[bool]]] = (),
    seed: int | None = None,
) -> list[str]:
    """Return greedy continuations, special tokens removed; `total`: `new_tokens` counts the prompt as well.

    `scored`: of each prompt an example and the hits of its labels; hits before the first miss are not generated again.
    `seed`: sample instead, each prompt by random numbers of its own.
    """
    encoded = [tuple(ids) for ids in tokenizer(list(prompts))["input_ids"]] if prompts else []
    end = tokenizer.eos_token_id
    encoded = [ids[:-1] if ids and ids[-1] == end else ids for ids in encoded]
    limits = [max(new_tokens - len(ids), 0) if total else new_tokens for ids in encoded]
    draws = None
    if seed is not None:
        numbers = torch.Generator().manual_seed(seed)
        draws = torch.rand(len(encoded), max(limits, default=0), dtype=torch.float64, generator=numbers)
    continued = generation.continue_prompts(
        network,
        encoded,
        limits,
        ends={end},
        pad=pad_of(tokenizer),
        token_budget=CACHED_PER_PASS * token_budget,
        known=[_leading_labels(ids, *pair) for ids, pair in zip(encoded, scored, strict=True)] if scored else None,
        draws=draws,
    )
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in continued]


def _leading_labels(prompt: tuple[int, ...], example: Example, hits: Sequence[bool]) -> tuple[int, ...]:
    """Return the labels before the first miss: none if the prompt is another, as where a token has a part of both."""
    start = example.answer_start
    return example.input_ids[start : start + count_leading_hits(hits)] if example.input_ids[:start] == prompt else ()


def count_leading_hits(hits: Sequence[bool]) -> int:
    """Return how many there are before the first miss."""
    return sum(1 for _ in takewhile(bool, hits))
