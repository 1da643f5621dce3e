"""Examples as one row without pads, in which tokens that several begin with stand once.

Each token of that row goes through every layer once. Attention alone sees whole examples, a row each, for which the
tokens' queries, keys and values are copied; where an example shares a third of its tokens with the one before it, only
the queries of the others are.
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
"""Architectures whose layers make masks of their own, for rows of one length."""


class AttentionRows(NamedTuple):
    """Which tokens of the packed row attention reads for some examples.

    `rows` (examples, longest): for keys and values. `queries` (examples, most): for queries, all of `rows` or the last
    ones. `mask` (examples, 1, most, longest): which keys each query sees; None: causal, where all are queries.
    """

    rows: torch.Tensor
    queries: torch.Tensor
    mask: torch.Tensor | None


class PackedRows(NamedTuple):
    """`input_ids`, `positions` (1, tokens): the row. `attention`: how its tokens see each other.

    `places` (tokens,): where each token is among all queries, row after row. `read` (N,): the places in `input_ids`
    whose logits predict a label. `labels_read` (labels,): the number in `read` of each label, example after example.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    attention: list[AttentionRows]
    places: torch.Tensor
    read: torch.Tensor
    labels_read: torch.Tensor


_PACKED: ContextVar[PackedRows] = ContextVar("_PACKED")


def pack(examples: Sequence[Example], device: Any) -> PackedRows:
    """Return examples packed, without their last tokens, which predict nothing.

    An example shares tokens with the one before it, so that sorted examples share the most.
    """
    ids: list[int] = []
    positions: list[int] = []
    label_places: list[int] = []
    whole: list[tuple[list[int], int]] = []
    partly: list[tuple[list[int], int]] = []
    row: list[int] = []
    last: tuple[int, ...] = ()
    for example in examples:
        tokens = example.input_ids[:-1]
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(last, tokens, strict=False)))
        row = [*row[:same], *range(len(ids), len(ids) + len(tokens) - same)]
        (partly if 3 * same >= len(tokens) > same else whole).append((row, same))
        ids += tokens[same:]
        positions += range(same, len(tokens))
        label_places += row[example.answer_start - 1 :]
        last = tokens
    places, attention = torch.empty(len(ids), dtype=torch.long), []
    begin = 0
    for part in filter(None, (whole, partly)):
        shared = torch.tensor([[same] for _, same in part])
        lengths = torch.tensor([[len(row)] for row, _ in part])
        rows, _ = pad_rows([row for row, _ in part], 0)
        first = 0 * shared if part is whole else shared
        columns = first + torch.arange(int((lengths - first).max()))
        queries = rows.gather(1, columns.clamp(max=rows.shape[1] - 1))
        mask = None if part is whole else (torch.arange(rows.shape[1]) <= columns[..., None])[:, None].to(device)
        new = (columns >= shared) & (columns < lengths)
        places[queries[new]] = begin + new.flatten().nonzero()[:, 0]
        begin += new.numel()
        attention.append(AttentionRows(rows.to(device), queries.to(device), mask))
    read, labels_read = torch.tensor(label_places, dtype=torch.long).unique(return_inverse=True)
    row_ids, row_positions, *others = (
        part.to(device) for part in (torch.tensor([ids]), torch.tensor([positions]), places, read, labels_read)
    )
    return PackedRows(row_ids, row_positions, attention, *others)


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
    packed, outputs = _PACKED.get(), []
    states = [part[0].transpose(0, 1) for part in (query, key, value)]
    for rows, queries, mask in packed.attention:
        query, key, value = (
            part.index_select(0, chosen.flatten()).unflatten(0, chosen.shape).transpose(1, 2)
            for part, chosen in zip(states, (queries, rows, rows), strict=True)
        )
        output, _ = sdpa_attention_forward(module, query, key, value, mask, **settings)
        outputs.append(output.flatten(0, 1))
    return torch.cat(outputs).index_select(0, packed.places)[None], None


AttentionInterface.register(ATTENTION, _attend)
