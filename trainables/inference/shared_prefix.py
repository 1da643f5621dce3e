"""Examples that begin alike, such as a question with its seven answers: the beginning goes through the model once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import torch

from trainables.common.tokens import Example
from trainables.inference import kv_cache


class Part(NamedTuple):
    """What an example has from token `start` on, of which no label's token before it is missing.

    `group`: the number of the group whose trunk comes before it.
    """

    example: Example
    start: int = 0
    group: int = 0

    @property
    def tokens(self) -> int:
        return len(self.example.input_ids) - self.start


@dataclass(frozen=True)
class Batch:
    """Padded on the right: `input_ids`, `mask` (rows, tokens).

    `places`: of every label the place of the token before it in `input_ids.flatten()`; `labels`: it itself.
    """

    input_ids: torch.Tensor
    mask: torch.Tensor
    places: torch.Tensor
    labels: torch.Tensor

    def choose(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states (rows, tokens, size) before labels: (1, labels, size)."""
        return hidden.flatten(0, 1)[self.places][None]


def collate(parts: Sequence[Part], pad: int, device: Any) -> Batch:
    """Return the parts as rows; their labels one example after the other."""
    width = max(part.tokens for part in parts)
    input_ids, mask = torch.full((len(parts), width), pad), torch.zeros(len(parts), width, dtype=torch.long)
    places: list[int] = []
    labels: list[int] = []
    for row, (example, start, _) in enumerate(parts):
        count = len(example.input_ids) - start
        input_ids[row, :count] = torch.tensor(example.input_ids[start:])
        mask[row, :count] = 1
        first = row * width + example.answer_start - 1 - start
        places += range(first, first + example.answer_tokens)
        labels += example.input_ids[example.answer_start :]
    return Batch(*(part.to(device) for part in (input_ids, mask, torch.tensor(places), torch.tensor(labels))))


def trunk(group: Sequence[Example]) -> int:
    """Return how many tokens all examples share from the start, up to the token before the first label."""
    side_by_side = zip(*(example.input_ids for example in group), strict=False)
    same = sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, side_by_side))
    return min(same, *(example.answer_start - 1 for example in group))


class Trunks:
    """The keys and values of several groups' beginnings, each (tokens,) of ids."""

    def __init__(self, network: Any, beginnings: Sequence[Sequence[int]], pad: int) -> None:
        self.network = network
        input_ids, self.mask = kv_cache.left_padded(beginnings, pad, network.device)
        positions = (self.mask.cumsum(1) - 1).clamp(min=0)
        self.layers, _ = kv_cache.read(network, [], input_ids, self.mask, positions, lambda hidden: hidden[:, :0])

    def logits(self, parts: Sequence[Part], batch: Batch) -> torch.Tensor:
        """Return the logits (labels, vocabulary) of the parts, each after the trunk of its group."""
        rows = torch.tensor([part.group for part in parts], device=self.mask.device)
        layers = [layer.select(rows) for layer in self.layers]
        mask = torch.cat([self.mask[rows], batch.mask], 1)
        starts = torch.tensor([part.start for part in parts], device=self.mask.device)
        positions = starts[:, None] + torch.arange(batch.mask.shape[1], device=self.mask.device)
        return kv_cache.read(self.network, layers, batch.input_ids, mask, positions, batch.choose)[1][0]


def split(groups: Sequence[Sequence[Example]], reach: float) -> tuple[list[Part], list[list[Part]]]:
    """Return examples to be read whole, and groups of parts to be read after their trunk."""
    alone: list[Part] = []
    shared: list[list[Part]] = []
    for group in groups:
        start = trunk(group) if len(group) > 1 else 0
        if start > 0 and max(len(example.input_ids) for example in group) <= reach:
            shared.append([Part(example, start) for example in group])
        else:
            alone += [Part(example) for example in group]
    return alone, shared


def numbered(groups: Sequence[Sequence[Part]]) -> Iterator[Part]:
    """Yield the parts of all groups, each with its group's number."""
    return (part._replace(group=number) for number, group in enumerate(groups) for part in group)
