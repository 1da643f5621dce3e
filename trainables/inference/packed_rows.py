"""Examples as one row without pads, in which tokens that several begin with stand once.

Each token of that row goes through every layer once. Attention alone sees whole examples, a row each, for which the
tokens' queries, keys and values are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from trainables.common.tokenized_row import Example
from trainables.inference import kv_cache
from trainables.inference.padded_batch import pad_rows

ATTENTION = "packed_rows"
OWN_MASKS = ("doge",)


class PackedRows(NamedTuple):
    """`input_ids`, `positions` (1, tokens); `rows` (examples, longest): where the tokens of each example are in them.

    `places` (tokens,): where each token is in `rows`, counted row after row. `read` (N,): the places in `input_ids`
    whose logits tell a label. `labels_read` (labels,): the number in `read` of each label, example after example.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    rows: torch.Tensor
    places: torch.Tensor
    read: torch.Tensor
    labels_read: torch.Tensor


_PACKED: ContextVar[PackedRows] = ContextVar("_PACKED")


def pack(examples: Sequence[Example], device: Any) -> PackedRows:
    """Return examples packed, without their last tokens, which tell nothing.

    An example shares tokens with the one before it, so that sorted examples share the most.
    """
    width = max(len(example.input_ids) for example in examples) - 1
    ids: list[int] = []
    positions: list[int] = []
    places: list[int] = []
    told: list[int] = []
    rows: list[list[int]] = []
    last: tuple[int, ...] = ()
    for number, example in enumerate(examples):
        tokens = example.input_ids[:-1]
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(last, tokens, strict=False)))
        rows.append([*(rows[-1][:same] if rows else ()), *range(len(ids), len(ids) + len(tokens) - same)])
        ids += tokens[same:]
        positions += range(same, len(tokens))
        places += range(number * width + same, number * width + len(tokens))
        told += rows[-1][example.answer_start - 1 :]
        last = tokens
    read, labels_read = torch.tensor(told, dtype=torch.long).unique(return_inverse=True)
    padded, _ = pad_rows(rows, 0)
    parts = (torch.tensor([ids]), torch.tensor([positions]), padded, torch.tensor(places), read, labels_read)
    return PackedRows(*(part.to(device) for part in parts))


@contextmanager
def packing(network: Any, longest: int) -> Iterator[bool]:
    """Yield whether `read_logits` can be used meanwhile: where causal attention is sdpa's and sees `longest` tokens.

    Not of models with parts that have settings of their own (images), and not of those that make masks of their own.
    """
    config = network.config
    simple = network._can_set_attn_implementation() and not config.sub_configs and config.model_type not in OWN_MASKS
    if not simple or config._attn_implementation != "sdpa" or longest > kv_cache.attention_window(network):
        yield False
        return
    network.set_attn_implementation(ATTENTION)
    try:
        yield True
    finally:
        network.set_attn_implementation("sdpa")


def read_logits(network: Any, packed: PackedRows) -> torch.Tensor:
    """Return the logits (N, vocabulary) at `packed.read`."""
    token = _PACKED.set(packed)
    try:
        given = {"input_ids": packed.input_ids, "position_ids": packed.positions, "use_cache": False}
        logits = network(**given, logits_to_keep=packed.read).logits[0]
    finally:
        _PACKED.reset(token)
    return logits if len(logits) == len(packed.read) else logits[packed.read]


def _attend(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **settings: Any
) -> tuple[torch.Tensor, None]:
    """Return attention (1, tokens, heads, size) over states (1, heads, tokens, size).

    It is causal, so that no token of an example sees what its row is filled up with.
    """
    packed = _PACKED.get()
    every = packed.rows.flatten()
    query, key, value = (
        part[0].transpose(0, 1).index_select(0, every).unflatten(0, packed.rows.shape).transpose(1, 2)
        for part in (query, key, value)
    )
    output, _ = sdpa_attention_forward(module, query, key, value, None, **settings)
    return output.flatten(0, 1).index_select(0, packed.places)[None], None


AttentionInterface.register(ATTENTION, _attend)
