"""Continuations, greedy or sampled, many rows at a time: a row that has ended leaves its place to the next one.

transformers' own `generate` computes every row of a batch until the last one ends. Here rows end at their end token or
at their own limit, and the keys and values of the others move together (docs/LOG.md has what that saves).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any

import torch
from torch.nn import functional

from trainables.common.errors import InputError
from trainables.inference import kv_cache, threads_and_ranks
from trainables.inference.padded_batch import pad_rows
from trainables.inference.progress import Counter

HARMLESS = frozenset(
    "do_sample temperature top_p top_k min_p typical_p max_length max_new_tokens use_cache transformers_version "
    "_from_model_config bos_token_id eos_token_id pad_token_id output_attentions output_hidden_states".split()
)
"""The generation settings that a model may have without changing which token is the likeliest, or which one ends."""
TOP_P = 0.9
"""Sampled tokens are of the likeliest ones that have this probability together, at temperature 1."""
PARTS = 2**40
"""Probabilities are added as whole numbers of such parts: sums of floats on a GPU depend on their order."""
REFILL = 0.25
"""Rows are taken up, and ended ones dropped, when so large a part of the places is free: each move copies the cache."""
ROOM = 32
"""A row is counted with room for so many more tokens, or for its limit if that is less: most end long before it."""


@dataclass(frozen=True)
class Request:
    """A prompt's ids, and how many tokens may follow it."""

    ids: tuple[int, ...]
    limit: int

    @property
    def longest(self) -> int:
        """Tokens at the most."""
        return len(self.ids) + self.limit


def is_plain(network: Any) -> bool:
    """Return whether the model's settings leave greedy decoding as it is: no penalty, no forbidden words."""
    return network.generation_config.to_diff_dict().keys() <= HARMLESS


@torch.no_grad()
def continue_prompts(
    network: Any,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    *,
    ends: Collection[int],
    pad: int,
    token_budget: int,
    known: Sequence[Sequence[int]] | None = None,
    draws: torch.Tensor | None = None,
) -> list[list[int]]:
    """Return the likeliest ids after each prompt, up to one of `ends` and without it, as many as its limit at most.

    `token_budget`: tokens of a batch whose keys and values are kept, padding and what is to come included.
    `known`: the ids that each continuation is known to begin with; they are read like the prompt, all at once.
    `draws`: to sample instead, a uniform number for each prompt and place of a token (prompts, longest row), so that a
    row's tokens depend on no other row. Raises InputError where a row to sample is longer than the attention window.
    """
    if known is None or not is_plain(network):
        known = [()] * len(prompts)
    found = [list(ids[:limit]) for ids, limit in zip(known, limits, strict=True)]
    requests = [
        Request((*prompt, *ids), 0 if not set(ids).isdisjoint(ends) else limit - len(ids))
        for prompt, ids, limit in zip(prompts, found, limits, strict=True)
    ]
    found = [_cut_at(ends, ids) for ids in found]
    order = [row for row in range(len(requests)) if requests[row].limit > 0]
    order.sort(key=lambda row: (len(requests[row].ids), -requests[row].limit, row))  # rows of like width come together
    if not order:
        return found
    longest = max(requests[row].longest for row in order)
    fits = longest <= kv_cache.attention_window(network)
    if draws is not None and not fits:
        raise InputError(f"rows of {longest} tokens are too long to sample for {type(network).__name__}")
    movable = fits and (draws is not None or is_plain(network))
    decode = partial(_decode_moving_rows, draws=draws) if movable else _decode_by_transformers
    threads = threads_and_ranks.threads_for(network, token_budget // 4)
    workers = min(threads_and_ranks.workers_for(network, token_budget // 4), len(order))
    shares = [order[worker::workers] for worker in range(workers)]
    counter = Counter("generations", sum(map(len, threads_and_ranks.share_of_rank(shares))))

    def generate(rows: list[int], model: Any) -> dict[int, list[int]]:
        return decode(model, requests, rows, ends, pad, token_budget // threads, counter)

    for share in threads_and_ranks.run_all(network, [partial(generate, rows) for rows in shares], threads):
        for row, ids in share.items():
            found[row] += ids
    return found


def _cut_at(ends: Collection[int], ids: list[int]) -> list[int]:
    return list(takewhile(lambda token: token not in ends, ids))


def _count_places(sizes: Iterable[tuple[int, int]], token_budget: int) -> int:
    """Return how many of the first rows a batch holds, one at least: each has as many columns as the widest needs.

    `sizes`: the tokens of each row, and the most that may follow. Rows are aligned on the right, where those come.
    """
    count = width = more = 0
    for count, (tokens, limit) in enumerate(sizes, 1):
        width, more = max(width, tokens), max(more, limit)
        if count * (width + more) > token_budget:
            return max(1, count - 1)
    return count


def _decode_by_transformers(
    network: Any,
    requests: Sequence[Request],
    order: list[int],
    ends: Collection[int],
    pad: int,
    token_budget: int,
    counter: Counter,
) -> dict[int, list[int]]:
    """Call transformers' `generate` on one batch after the other: for models whose rows cannot move."""
    found = {}
    while order:
        size = _count_places(((len(requests[row].ids), requests[row].limit) for row in order), token_budget)
        rows, order = order[:size], order[size:]
        input_ids, mask = pad_rows([requests[row].ids for row in rows], pad, network.device, left=True)
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
            eos_token_id=sorted(ends),
        )[:, input_ids.shape[1] :].tolist()
        for row, ids in zip(rows, produced, strict=True):
            found[row] = _cut_at(ends, ids[: requests[row].limit])
        counter.add(size)
    return found


def _decode_moving_rows(
    network: Any,
    requests: Sequence[Request],
    order: list[int],
    ends: Collection[int],
    pad: int,
    token_budget: int,
    counter: Counter,
    draws: torch.Tensor | None = None,
) -> dict[int, list[int]]:
    """Keep the rows that have not ended in one batch, in which others take the places of those that have.

    When the rows grow beyond `token_budget`, the last ones leave, and are read again later with what they have got.
    """
    ids = {row: list(requests[row].ids) for row in order}
    left = {row: requests[row].limit for row in order}
    batch = _Batch(network, longest=max(requests[row].longest for row in order), draws=draws)
    while left:
        alive = [place for place, row in enumerate(batch.rows) if row in left]
        waiting = [batch.rows[place] for place in alive] + order
        size = _count_places(((len(ids[row]), min(left[row], ROOM)) for row in waiting), token_budget)
        full = len(batch.rows) * (batch.mask.shape[1] + 1) > token_budget and len(batch.rows) > 1
        if not full:
            size = max(size, len(alive))
        free = max(0, size - len(alive))
        if full or free >= min(len(order), max(1, REFILL * size)) > 0 or len(alive) <= (1 - REFILL) * len(batch.rows):
            batch.keep(alive[:size])
            first = len(batch.rows)
            new, order = waiting[first:size], waiting[size:]
            for places in threads_and_ranks.group_by_length([len(ids[row]) for row in new], token_budget // 4):
                rows = [new[place] for place in places]
                batch.add(rows, [ids[row] for row in rows], pad)
        else:
            batch.step()
            first = 0
        for row, token in zip(batch.rows[first:], batch.last[first:].tolist(), strict=True):
            if row not in left:
                continue
            left[row] -= 1
            if token not in ends:
                ids[row].append(token)
            if token in ends or left[row] == 0:
                del left[row]
                counter.add(1)
    return {row: tokens[len(requests[row].ids) :] for row, tokens in ids.items()}


@dataclass
class _Batch:
    """Rows under way, aligned on the right: `mask` (rows, columns) of the cache, `last` (rows,) their newest tokens.

    `longest`: tokens that a row may have at the most. Rows that have ended wait at that place until they are dropped.
    """

    network: Any
    longest: int
    draws: torch.Tensor | None = None
    rows: list[int] = field(default_factory=list)
    cache: list[Any] = field(default_factory=list)
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
        for number, layer in enumerate(self.cache):  # one layer at a time lies there twice
            self.cache[number] = kv_cache.select_rows(layer, chosen, first)

    def add(self, rows: list[int], prompts: Sequence[Sequence[int]], pad: int) -> None:
        """Read new rows' prompts and put them below those under way."""
        input_ids, mask = pad_rows(prompts, pad, self.network.device, left=True)
        cache, last = self._read(rows, [], input_ids, mask, (mask.cumsum(1) - 1).clamp(min=0))
        if self.rows:
            width = max(mask.shape[1], self.mask.shape[1])
            mask = torch.cat([kv_cache.right_aligned(part, width, 1) for part in (self.mask, mask)])
            last = torch.cat([self.last, last])
            for number, new in enumerate(cache):
                old, self.cache[number] = self.cache[number], new
                new.keys, new.values = (
                    torch.cat([kv_cache.right_aligned(part, width, 2) for part in pair])
                    for pair in ((old.keys, new.keys), (old.values, new.values))
                )
        self.rows, self.cache, self.mask, self.last = [*self.rows, *rows], cache, mask, last

    def step(self) -> None:
        """Read every row's newest token."""
        self.mask = functional.pad(self.mask, (0, 1), value=1)
        positions = (self.mask.sum(1, keepdim=True) - 1).clamp(max=self.longest - 1)
        self.cache, self.last = self._read(self.rows, self.cache, self.last[:, None], self.mask, positions)

    def _read(
        self, rows: list[int], layers: list[Any], input_ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor
    ) -> tuple[list[Any], torch.Tensor]:
        """Return the layers' keys and values with those of `input_ids`, and each row's next token."""
        cache, output = kv_cache.read_tokens(self.network, layers, input_ids, mask, positions, 1)
        logits = output.logits[:, -1]
        if self.draws is None:
            return cache, logits.argmax(-1)
        places = mask.sum(1).clamp(max=self.draws.shape[1] - 1).cpu()
        return cache, draw_tokens(logits, self.draws[rows, places].to(logits.device))


def draw_tokens(logits: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Return a token of each row (rows,) by logits (rows, vocabulary) and uniform numbers from 0 to below 1 (rows,).

    The tokens stand in a line, the likeliest first, each as wide as it is likely; those behind `TOP_P` are cut off.
    """
    parts = (logits.float().softmax(-1).double() * PARTS).long()
    parts, tokens = torch.sort(parts, dim=-1, descending=True, stable=True)
    parts = parts * (parts.cumsum(-1) - parts < TOP_P * PARTS)
    ends = parts.cumsum(-1)
    places = (ends <= (draws * ends[:, -1]).long()[:, None]).sum(-1, keepdim=True)
    return tokens.gather(-1, places)[:, 0]
