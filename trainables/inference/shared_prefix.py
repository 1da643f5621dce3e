"""Examples that begin alike, such as a question with its seven answers: the beginning goes through the model once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import torch

from trainables.common.tokenized_row import Example
from trainables.inference import kv_cache
from trainables.inference.padded_batch import pad_rows


class Suffix(NamedTuple):
    """An example from token `start` on. The tokens before are the prefix that all examples of group `group` share."""

    example: Example
    start: int = 0
    group: int = 0

    @property
    def tokens(self) -> int:
        return len(self.example.input_ids) - self.start


class Batch(NamedTuple):
    """Suffixes padded on the right: `input_ids`, `mask`, and `keep`, the positions before labels (rows, tokens).

    `labels`: those of all rows, one row after the other.
    """

    input_ids: torch.Tensor
    mask: torch.Tensor
    keep: torch.Tensor
    labels: torch.Tensor


def collate(suffixes: Sequence[Suffix], pad: int, device: Any) -> Batch:
    """Return the suffixes as rows."""
    input_ids, mask = pad_rows([example.input_ids[start:] for example, start, _ in suffixes], pad)
    following = torch.arange(1, mask.shape[1] + 1)
    first = torch.tensor([[example.answer_start - start] for example, start, _ in suffixes])
    keep = (following >= first) & (following < mask.sum(1, keepdim=True))
    labels = torch.tensor([label for example, *_ in suffixes for label in example.input_ids[example.answer_start :]])
    return Batch(*(part.to(device) for part in (input_ids, mask, keep, labels)))


def prefix_length(group: Sequence[Example]) -> int:
    """Return how many tokens all examples share from the start, up to the token before the first label."""
    columns = zip(*(example.input_ids for example in group), strict=False)
    same = sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, columns))
    return min(same, *(example.answer_start - 1 for example in group))


def split_groups(groups: Sequence[Sequence[Example]], window: float) -> tuple[list[Suffix], list[list[Suffix]]]:
    """Return the examples to be read whole, and the groups that share a prefix and fit into the attention window."""
    whole: list[Suffix] = []
    sharing: list[list[Suffix]] = []
    for group in groups:
        start = prefix_length(group) if len(group) > 1 else 0
        if start > 0 and max(len(example.input_ids) for example in group) <= window:
            sharing.append([Suffix(example, start) for example in group])
        else:
            whole += [Suffix(example) for example in group]
    return whole, sharing


class Prefixes:
    """Keys and values of the prefixes of the groups that `suffixes` belong to, one a group, by group number."""

    def __init__(self, network: Any, suffixes: Sequence[Suffix], pad: int) -> None:
        self.network = network
        ids = {suffix.group: suffix.example.input_ids[: suffix.start] for suffix in suffixes}
        input_ids, self.mask = pad_rows(list(ids.values()), pad, network.device, left=True)
        positions = (self.mask.cumsum(1) - 1).clamp(min=0)
        self.layers, _ = kv_cache.read_tokens(network, [], input_ids, self.mask, positions, self.mask < 0)

    def logits(self, suffixes: Sequence[Suffix], batch: Batch) -> torch.Tensor:
        """Return the logits (labels, vocabulary) of the suffixes, each after the prefix of its group."""
        rows = torch.tensor([suffix.group for suffix in suffixes], device=self.mask.device)
        layers = [kv_cache.select_rows(layer, rows) for layer in self.layers]
        mask = torch.cat([self.mask[rows], batch.mask], 1)
        starts = torch.tensor([suffix.start for suffix in suffixes], device=self.mask.device)
        positions = starts[:, None] + torch.arange(batch.mask.shape[1], device=self.mask.device)
        _, output = kv_cache.read_tokens(self.network, layers, batch.input_ids, mask, positions, batch.keep)
        return kv_cache.select_logits(output, batch.keep)
