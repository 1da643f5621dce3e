"""Greedy continuations, many rows at a time: a row that has ended leaves its place to the next one.

transformers' own `generate` computes every row of a batch until the last one ends. Here rows end at their end token or
at their own limit, and the keys and values of the others move together (docs/LOG.md has what that saves).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

HARMLESS = frozenset(
    "do_sample temperature top_p top_k min_p typical_p max_length max_new_tokens use_cache transformers_version "
    "_from_model_config bos_token_id eos_token_id pad_token_id output_attentions output_hidden_states".split()
)
"""What a model's generation settings may say without changing which token is the likeliest, or which one ends."""
REFILL = 0.25
"""Rows are taken up, and ended ones dropped, when so large a part of the places is free: each move copies the cache."""
SPARE = 32
"""Columns that a cache grows by: its tokens are copied once in so many steps."""


@dataclass(frozen=True)
class Request:
    """A prompt's ids, and how many tokens may follow it."""

    ids: tuple[int, ...]
    limit: int

    @property
    def reach(self) -> int:
        """Tokens at the most."""
        return len(self.ids) + self.limit


def reach(network: Any) -> float:
    """How many tokens back every layer's attention looks: inf where it is whole.

    0 where the layers keep other things of the past than keys and values, or positions cannot be told: rows of such a
    model do not move in and out of a batch.
    """
    if (
        not {"past_key_values", "attention_mask", "position_ids"}
        <= inspect.signature(network.forward).parameters.keys()
    ):
        return 0
    layers = DynamicCache(config=network.config).layers
    if any(type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers):
        return 0
    return min((layer.sliding_window for layer in layers if type(layer) is DynamicSlidingWindowLayer), default=math.inf)


def is_plain(network: Any) -> bool:
    """Whether the model's generation settings leave greedy decoding as it is: no penalty, no forbidden words."""
    return network.generation_config.to_diff_dict().keys() <= HARMLESS


@torch.no_grad()
def continuations(
    network: Any, prompts: Sequence[Sequence[int]], limits: Sequence[int], *, end: int, pad: int, token_budget: int
) -> list[list[int]]:
    """The likeliest ids after each prompt, up to `end` and without it, at most as many as its limit says.

    `token_budget`: tokens of a batch whose keys and values are kept, padding and what is to come included.
    """
    requests = [Request(tuple(ids), limit) for ids, limit in zip(prompts, limits, strict=True)]
    order = [row for row in range(len(requests)) if requests[row].limit > 0]
    order.sort(key=lambda row: (-requests[row].reach, row))
    found: list[list[int]] = [[] for _ in requests]
    if not order:
        return found
    ours = is_plain(network) and requests[order[0]].reach <= reach(network)
    decode = _moving if ours else _at_once
    for row, token in decode(network, requests, order, end, pad, token_budget):
        found[row].append(token)
    return found


def places(requests: Sequence[Request], order: Sequence[int], token_budget: int) -> int:
    """Rows of a batch whose longest is the first of `order`."""
    return max(1, token_budget // requests[order[0]].reach)


def _at_once(
    network: Any, requests: Sequence[Request], order: list[int], end: int, pad: int, token_budget: int
) -> Iterator[tuple[int, int]]:
    """transformers' `generate` on one batch after the other: for models that `reach` or `is_plain` leave out."""
    while order:
        size = places(requests, order, token_budget)
        rows, order = order[:size], order[size:]
        input_ids, mask = _left_padded([requests[row].ids for row in rows], pad, network.device)
        produced = network.generate(
            input_ids=input_ids,
            attention_mask=mask,
            do_sample=False,
            num_beams=1,
            temperature=None,
            top_p=None,
            top_k=None,
            max_new_tokens=max(requests[row].limit for row in rows),
            pad_token_id=pad,
            eos_token_id=end,
        )[:, input_ids.shape[1] :].tolist()
        for row, ids in zip(rows, produced, strict=True):
            ids = ids[: requests[row].limit]
            yield from ((row, token) for token in (ids[: ids.index(end)] if end in ids else ids))


def _moving(
    network: Any, requests: Sequence[Request], order: list[int], end: int, pad: int, token_budget: int
) -> Iterator[tuple[int, int]]:
    """Row numbers and their next tokens, in the order in which they are found."""
    left = {row: requests[row].limit for row in order}
    batch = _Batch(network)

    def newest(start: int) -> Iterator[tuple[int, int]]:
        """Of the rows from place `start` on that have not ended."""
        for row, token in zip(batch.rows[start:], batch.last[start:].tolist(), strict=True):
            if row not in left:
                continue
            left[row] -= 1
            if token != end:
                yield row, token
            if token == end or left[row] == 0:
                del left[row]

    while left:
        alive = [place for place, row in enumerate(batch.rows) if row in left]
        size = places(requests, [batch.rows[place] for place in alive] + order, token_budget)
        free = min(size - len(alive), len(order))
        if free >= min(len(order), max(1, REFILL * size)) > 0 or len(alive) <= (1 - REFILL) * len(batch.rows):
            batch.keep(alive)
            new, order = order[:free], order[free:]
            for rows in _prefills(requests, new, max(1, token_budget // 4)):
                batch.take(rows, [requests[row].ids for row in rows], pad)
            yield from newest(len(alive))
        elif alive:
            batch.step()
            yield from newest(0)


def _prefills(requests: Sequence[Request], rows: list[int], token_budget: int) -> Iterator[list[int]]:
    """The rows in groups whose padded prompts are within the budget."""
    start, width = 0, 0
    for stop, row in enumerate(rows):
        width = max(width, len(requests[row].ids))
        if stop > start and width * (stop - start + 1) > token_budget:
            yield rows[start:stop]
            start, width = stop, len(requests[row].ids)
    if rows:
        yield rows[start:]


class _Layer(DynamicLayer):
    """Keys and values (rows, heads, tokens, size) with columns to spare, so that a step copies its own token alone."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.hold(key_states, value_states)
            return self.keys, self.values
        old, new = self.get_seq_length(), self.get_seq_length() + key_states.shape[-2]
        if new > self.wide_keys.shape[-2]:
            self.wide_keys, self.wide_values = (_widened(part, new + SPARE) for part in (self.keys, self.values))
        self.wide_keys[..., old:new, :] = key_states
        self.wide_values[..., old:new, :] = value_states
        self.keys, self.values = self.wide_keys[..., :new, :], self.wide_values[..., :new, :]
        return self.keys, self.values

    def hold(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """These and no others, without columns to spare."""
        self.keys, self.values = self.wide_keys, self.wide_values = keys, values


def _widened(part: torch.Tensor, width: int) -> torch.Tensor:
    wide = part.new_empty((*part.shape[:-2], width, part.shape[-1]))
    wide[..., : part.shape[-2], :] = part
    return wide


@dataclass
class _Batch:
    """Rows under way, aligned on the right: `mask` (rows, columns) of the cache, `last` (rows,) their newest tokens."""

    network: Any
    rows: list[int] = field(default_factory=list)
    cache: list[_Layer] = field(default_factory=list)
    mask: torch.Tensor = field(default_factory=lambda: torch.empty(0, 0, dtype=torch.long))
    last: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))

    def keep(self, places: list[int]) -> None:
        """Drop all other rows, and the columns that only they used."""
        if len(places) == len(self.rows):
            return
        self.rows = [self.rows[place] for place in places]
        if not places:
            self.cache = []
            return
        chosen = torch.tensor(places, device=self.mask.device)
        self.mask, self.last = self.mask[chosen], self.last[chosen]
        first = int(self.mask.any(0).int().argmax())
        self.mask = self.mask[:, first:]
        for layer in self.cache:
            layer.hold(*(part[:, :, first:][chosen] for part in (layer.keys, layer.values)))

    def take(self, rows: list[int], prompts: Sequence[tuple[int, ...]], pad: int) -> None:
        """Read new rows' prompts and put them below those under way."""
        input_ids, mask = _left_padded(prompts, pad, self.network.device)
        cache, last = self._forward([], input_ids, mask, (mask.cumsum(1) - 1).clamp(min=0))
        if self.rows:
            width = max(mask.shape[1], self.mask.shape[1])
            mask = torch.cat([_right_aligned(part, width, 1) for part in (self.mask, mask)])
            last = torch.cat([self.last, last])
            for old, new in zip(self.cache, cache, strict=True):
                pairs = ((old.keys, new.keys), (old.values, new.values))
                new.hold(*(torch.cat([_right_aligned(part, width, 2) for part in pair]) for pair in pairs))
        self.rows, self.cache, self.mask, self.last = [*self.rows, *rows], cache, mask, last

    def step(self) -> None:
        """Read every row's newest token."""
        self.mask = functional.pad(self.mask, (0, 1), value=1)
        positions = self.mask.sum(1, keepdim=True) - 1
        self.cache, self.last = self._forward(self.cache, self.last[:, None], self.mask, positions)

    def _forward(
        self, layers: list[_Layer], input_ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor
    ) -> tuple[list[_Layer], torch.Tensor]:
        """The layers' keys and values with those of `input_ids`, and each row's likeliest next token."""
        cache = DynamicCache()
        cache.layers = list(layers)
        cache.layer_class_to_replicate = _Layer
        with chosen_positions(self.network, lambda hidden: hidden[:, -1:]):
            logits = self.network(
                input_ids=input_ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            ).logits
        return cache.layers, logits[:, -1].argmax(-1)  # type: ignore[return-value]


@contextmanager
def chosen_positions(network: Any, choose: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Within it the model's head sees only what `choose` takes of the hidden states (rows, tokens, size).

    All else that the model does to its logits (scales, soft caps) stays.
    """
    head = network.get_output_embeddings()
    handle = head.register_forward_pre_hook(lambda _, given: (choose(given[0]), *given[1:]))
    try:
        yield
    finally:
        handle.remove()


def _left_padded(prompts: Sequence[Sequence[int]], pad: int, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask, each (rows, tokens)."""
    width = max(len(ids) for ids in prompts)
    input_ids = torch.tensor([[pad] * (width - len(ids)) + list(ids) for ids in prompts])
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts])
    return input_ids.to(device), mask.to(device)


def _right_aligned(part: torch.Tensor, width: int, dim: int) -> torch.Tensor:
    """Zeros in front along `dim`, up to `width`."""
    missing = width - part.shape[dim]
    if missing == 0:
        return part
    return torch.cat([part.new_zeros((*part.shape[:dim], missing, *part.shape[dim + 1 :])), part], dim)
