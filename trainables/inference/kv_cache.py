"""Keys and values of tokens that a model has read, as rows that can be dropped, repeated and put below others.

Only for models that keep nothing else of the past (see `attention_window`). transformers' own caches copy themselves at
every token.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

SPARE = 32
"""Columns that a cache grows by: its tokens are copied once in so many steps."""


def attention_window(network: Any) -> float:
    """Return how many tokens back every layer's attention looks: inf if it has no window.

    0 if the layers keep other things of the past than keys and values, or positions cannot be told: rows of such a
    model do not move in and out of a batch.
    """
    taken = inspect.signature(network.forward).parameters
    if not {"past_key_values", "attention_mask", "position_ids"} <= taken.keys():
        return 0
    layers = DynamicCache(config=network.config).layers
    if any(type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers):
        return 0
    return min((layer.sliding_window for layer in layers if type(layer) is DynamicSlidingWindowLayer), default=math.inf)


class Layer(DynamicLayer):
    """Keys and values (rows, heads, tokens, size) with columns to spare, so that a step copies its own token alone.

    After many tokens at once, as after a prefix, no step follows: columns to spare took 8 % of such a pass.
    """

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.replace(key_states, value_states)
            return self.contents()
        old, new = self.get_seq_length(), self.get_seq_length() + key_states.shape[-2]
        if new > self.wide_keys.shape[-2]:
            spare = SPARE if new == old + 1 else 0
            self.wide_keys, self.wide_values = (_widened(part, new + spare) for part in self.contents())
        self.wide_keys[..., old:new, :] = key_states
        self.wide_values[..., old:new, :] = value_states
        self.keys, self.values = self.wide_keys[..., :new, :], self.wide_values[..., :new, :]
        return self.contents()

    def replace(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Replace keys and values, without columns to spare."""
        self.keys, self.values = self.wide_keys, self.wide_values = keys, values

    def contents(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values without the spare columns."""
        count = self.get_seq_length()
        return self.wide_keys[..., :count, :], self.wide_values[..., :count, :]

    def select(self, rows: torch.Tensor, first: int = 0) -> Layer:
        """Return a layer of these rows, in this order and as often as they come, from column `first` on."""
        chosen = Layer()
        keys, values = self.contents()
        chosen.lazy_initialization(keys, values)
        chosen.replace(keys[:, :, first:][rows], values[:, :, first:][rows])
        return chosen


def _widened(part: torch.Tensor, width: int) -> torch.Tensor:
    wide = part.new_empty((*part.shape[:-2], width, part.shape[-1]))
    wide[..., : part.shape[-2], :] = part
    return wide


def read_tokens(
    network: Any,
    layers: Sequence[Layer],
    input_ids: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
    choose: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[list[Layer], torch.Tensor]:
    """Put the keys and values of `input_ids` (rows, tokens) after those in `layers`, and return the chosen logits.

    `mask` (rows, columns of the cache and tokens), `positions` (rows, tokens), `choose`: see `chosen_positions`.
    """
    cache = DynamicCache()
    cache.layer_class_to_replicate = Layer
    cache.layers.extend(layers)
    given = {"input_ids": input_ids, "attention_mask": mask, "position_ids": positions, "past_key_values": cache}
    with chosen_positions(network, choose):
        logits = network(**given, use_cache=True).logits
    return [layer for layer in cache.layers if isinstance(layer, Layer)], logits


@contextmanager
def chosen_positions(network: Any, choose: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Give the model's head only what `choose` takes of the hidden states (rows, tokens, size).

    All else that the model does to its logits (scales, soft caps) stays.
    """
    head = network.get_output_embeddings()
    handle = head.register_forward_pre_hook(lambda _, given: (choose(given[0]), *given[1:]))
    try:
        yield
    finally:
        handle.remove()


def left_padded(prompts: Sequence[Sequence[int]], pad: int, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, each (rows, tokens), padded on the left."""
    width = max(len(ids) for ids in prompts)
    input_ids = torch.tensor([[pad] * (width - len(ids)) + list(ids) for ids in prompts])
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts])
    return input_ids.to(device), mask.to(device)


def right_aligned(part: torch.Tensor, width: int, dim: int) -> torch.Tensor:
    """Put zeros in front along `dim`, up to `width`."""
    missing = width - part.shape[dim]
    if missing == 0:
        return part
    return torch.cat([part.new_zeros((*part.shape[:dim], missing, *part.shape[dim + 1 :])), part], dim)
