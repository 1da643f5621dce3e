"""Keys and values of tokens that a model has read, as rows that can be dropped, repeated and put below others.

Only for models that keep nothing else of the past: see `attention_window`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer


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


def select_rows(layer: Any, rows: torch.Tensor, first: int = 0) -> DynamicLayer:
    """Return a layer of these rows, in this order and as often as they come, from column `first` on."""
    chosen = DynamicLayer()
    chosen.lazy_initialization(layer.keys, layer.values)  # keys and values: (rows, heads, tokens, size)
    chosen.keys, chosen.values = layer.keys[:, :, first:][rows], layer.values[:, :, first:][rows]
    return chosen


def read_tokens(
    network: Any,
    layers: Sequence[Any],
    input_ids: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
    keep: int | torch.Tensor,
) -> tuple[list[Any], Any]:
    """Put the keys and values of `input_ids` (rows, tokens) after those in `layers`; return them and the output.

    `mask` (rows, columns of the cache and tokens), `positions` (rows, tokens), `keep`: transformers' `logits_to_keep`.
    """
    cache = DynamicCache()
    cache.layers.extend(layers)
    given = {"input_ids": input_ids, "attention_mask": mask, "position_ids": positions, "past_key_values": cache}
    output = network(**given, use_cache=True, logits_to_keep=keep)
    return list(cache.layers), output


def select_logits(output: Any, keep: torch.Tensor) -> torch.Tensor:
    """Return the logits (N, V) at the N positions `keep` (rows, tokens) that a model was asked for by `logits_to_keep`.

    A few architectures compute them at all positions in any case (xLSTM).
    """
    return output.logits[keep] if output.logits.ndim == 3 else output.logits


def right_aligned(part: torch.Tensor, width: int, dim: int) -> torch.Tensor:
    """Put zeros in front along `dim`, up to `width`."""
    return functional.pad(part, (0, 0) * (part.dim() - 1 - dim) + (width - part.shape[dim], 0))
