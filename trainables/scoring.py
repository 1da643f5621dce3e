"""What a model says of given answers, and what it answers itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from trainables import caches, generation, prefixes, tally
from trainables.templates import Example

IGNORED = -100


def pad_of(tokenizer: Any) -> int:
    """The token that rows are padded with: its own, else the one that ends a text."""
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id


def collate(examples: Sequence[Example], pad: int, width: int | None = None) -> dict[str, torch.Tensor]:
    """Pad on the right to the longest, or to `width`: input_ids, attention_mask and labels, each (rows, tokens)."""
    width = max(width or 0, *(len(example.input_ids) for example in examples))
    input_ids = torch.full((len(examples), width), pad, dtype=torch.long)
    labels = torch.full_like(input_ids, IGNORED)
    mask = torch.zeros_like(input_ids)
    for row, example in enumerate(examples):
        length = len(example.input_ids)
        input_ids[row, :length] = torch.tensor(example.input_ids)
        labels[row, example.answer_start : length] = input_ids[row, example.answer_start : length]
        mask[row, :length] = 1
    return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}


class LabelScores(NamedTuple):
    """Of each label of an example: its negative log-likelihood (nats), and whether it is the likeliest token."""

    losses: list[float]
    hits: list[bool]


def answer_losses(
    network: Any, groups: Sequence[Sequence[Example]], *, pad: int, token_budget: int
) -> list[list[float]]:
    """Summed negative log-likelihood of each example's answer, in nats, in the order given.

    The examples of a group begin alike, such as the answers to one question: the beginning is computed once.
    """
    distinct = [list(dict.fromkeys(group)) for group in groups]
    found: dict[Example, float] = {}
    for examples, logits, labels in _labelled(network, distinct, pad, token_budget):
        losses = _losses(logits, labels).cpu().double()
        found |= {example: float(part.sum()) for example, part in _by_example(examples, losses)}
    return [[found[example] for example in group] for group in groups]


def _losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihoods in fp32: (labels, vocabulary), (labels,) -> (labels,)."""
    return functional.cross_entropy(logits.float(), labels, reduction="none")


def every_token_loss(network: Any, examples: Sequence[Example], *, pad: int, token_budget: int) -> list[list[float]]:
    """Negative log-likelihood of each label of each example, in nats, in the order given."""
    return [scores.losses for scores in label_scores(network, examples, pad=pad, token_budget=token_budget)]


def label_scores(network: Any, examples: Sequence[Example], *, pad: int, token_budget: int) -> list[LabelScores]:
    """Losses and hits of one pass over each example, in the order given; no logits are kept."""
    found: dict[Example, LabelScores] = {}
    groups = [[example] for example in dict.fromkeys(examples)]
    for chosen, logits, labels in _labelled(network, groups, pad, token_budget):
        losses, hits = _losses(logits, labels).cpu(), (logits.argmax(-1) == labels).cpu()
        pairs = zip(_by_example(chosen, losses), _by_example(chosen, hits), strict=True)
        found |= {example: LabelScores(lost.tolist(), hit.tolist()) for (example, lost), (_, hit) in pairs}
    return [found[example] for example in examples]


Found = Iterator[tuple[list[Example], torch.Tensor, torch.Tensor]]
"""Of a pass its examples, the logits (labels, vocabulary) of all their labels, and the labels."""


@torch.no_grad()
def _labelled(network: Any, groups: Sequence[Sequence[Example]], pad: int, token_budget: int) -> Found:
    """Every example of every group once; the head sees the positions before labels alone.

    A label of 2,048 to 150,000 logits is much of a pass. What a model keeps of trunks counts in the budget.
    """
    tally.NOW.begin("answers", sum(map(len, groups)))
    alone, shared = prefixes.split(groups, caches.reach(network))
    for rows in batches([part.tokens for part in alone], token_budget):
        parts = [alone[row] for row in rows]
        batch = prefixes.collate(parts, pad, network.device)
        with caches.chosen_positions(network, batch.choose):
            found = network(input_ids=batch.input_ids, attention_mask=batch.mask, use_cache=False).logits[0]
        yield [part.example for part in parts], found, batch.labels
        tally.NOW.add(len(parts))
    for numbers in batches([group[0].start for group in shared], token_budget):
        chosen = [shared[number] for number in numbers]
        trunks = prefixes.Trunks(network, [group[0].example.input_ids[: group[0].start] for group in chosen], pad)
        under = list(prefixes.numbered(chosen))
        for rows in batches([trunks.mask.shape[1] + part.tokens for part in under], token_budget):
            parts = [under[row] for row in rows]
            batch = prefixes.collate(parts, pad, network.device)
            yield [part.example for part in parts], trunks.logits(parts, batch), batch.labels
            tally.NOW.add(len(parts))


def _by_example(examples: Sequence[Example], values: torch.Tensor) -> Iterator[tuple[Example, torch.Tensor]]:
    """Each example with its labels' part of the values (labels of all,)."""
    return zip(examples, values.split([example.answer_tokens for example in examples]), strict=True)


def generate(
    network: Any, tokenizer: Any, prompts: Sequence[str], *, token_budget: int, new_tokens: int, total: bool
) -> list[str]:
    """Greedy continuations, special tokens removed; `total`: `new_tokens` counts the prompt as well."""
    encoded = [tuple(tokenizer(prompt)["input_ids"]) for prompt in prompts]
    ended = tokenizer.eos_token_id
    encoded = [ids[:-1] if ids and ids[-1] == ended else ids for ids in encoded]
    limits = [max(new_tokens - len(ids), 0) if total else new_tokens for ids in encoded]
    continued = continuations(network, tokenizer, encoded, token_budget=token_budget, limits=limits)
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in continued]


def continuations(
    network: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], *, token_budget: int, limits: Sequence[int]
) -> list[list[int]]:
    """The ids that follow each prompt's, greedily, up to the end-of-sequence token and without it.

    Four times the tokens of a pass: of most of them only keys and values are there.
    """
    end, pad = tokenizer.eos_token_id, pad_of(tokenizer)
    budget = 4 * token_budget
    return generation.continuations(network, prompts, limits, end=end, pad=pad, token_budget=budget)


def batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Row numbers grouped by length, longest first, each group within `token_budget` padded tokens."""
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    start = 0
    while start < len(order):
        size = max(1, token_budget // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size
