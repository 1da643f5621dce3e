"""What a model says of given answers, and what it answers itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from trainables import generation
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


def token_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood of each label in fp32, 0 where there is none: (B, T, V), (B, T) -> (B, T - 1)."""
    shifted = labels[:, 1:]
    labelled = shifted != IGNORED
    found = functional.cross_entropy(logits[:, :-1][labelled].float(), shifted[labelled], reduction="none")
    return torch.zeros(shifted.shape, dtype=found.dtype, device=found.device).masked_scatter(labelled, found)


@torch.no_grad()
def answer_losses(network: Any, examples: Sequence[Example], *, pad: int, token_budget: int) -> list[float]:
    """Summed negative log-likelihood of each example's answer, in nats, in the order given."""
    sums = [0.0] * len(examples)
    for rows, labels, logits in _passes(network, examples, pad, token_budget):
        for row, total in zip(rows, token_losses(logits, labels).double().sum(1).tolist(), strict=True):
            sums[row] = total
    return sums


@torch.no_grad()
def every_token_loss(network: Any, examples: Sequence[Example], *, pad: int, token_budget: int) -> list[list[float]]:
    """Negative log-likelihood of each label of each example, in nats, in the order given."""
    found: list[list[float]] = [[] for _ in examples]
    for rows, labels, logits in _passes(network, examples, pad, token_budget):
        for row, losses in zip(rows, token_losses(logits, labels).tolist(), strict=True):
            found[row] = _of_labels(examples[row], losses)
    return found


class LabelScores(NamedTuple):
    """Of each label of an example: its negative log-likelihood (nats), and whether it is the likeliest token."""

    losses: list[float]
    hits: list[bool]


@torch.no_grad()
def label_scores(network: Any, examples: Sequence[Example], *, pad: int, token_budget: int) -> list[LabelScores]:
    """Losses and hits of one pass over each example, in the order given; no logits are kept."""
    found = [LabelScores([], []) for _ in examples]
    for rows, labels, logits in _passes(network, examples, pad, token_budget):
        losses = token_losses(logits, labels).tolist()
        hits = (logits[:, :-1].argmax(-1) == labels[:, 1:]).tolist()
        for row, lost, hit in zip(rows, losses, hits, strict=True):
            found[row] = LabelScores(_of_labels(examples[row], lost), _of_labels(examples[row], hit))
    return found


def _passes(
    network: Any, examples: Sequence[Example], pad: int, token_budget: int
) -> Iterator[tuple[list[int], torch.Tensor, torch.Tensor]]:
    """Row numbers, labels (B, T) and logits (B, T, V) of one forward pass after the other."""
    device = next(network.parameters()).device
    for rows in batches([len(example.input_ids) for example in examples], token_budget):
        batch = collate([examples[row] for row in rows], pad)
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        logits = network(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
        yield rows, batch["labels"], logits


def _of_labels(example: Example, values: list[Any]) -> list[Any]:
    """Of the values at a row's positions but the first, those of the labels."""
    return values[example.answer_start - 1 : len(example.input_ids) - 1]


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
