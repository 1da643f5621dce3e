"""What a model says of given answers, and what it answers itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

import torch
from torch.nn import functional

from trainables.common.tokens import Example
from trainables.inference import generation, kv_cache, parallel, shared_prefix
from trainables.inference.counting import Counter

IGNORED = -100


def pad_of(tokenizer: Any) -> int:
    """Return the token that rows are padded with: its own, else the one that ends a text."""
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


class Answers(NamedTuple):
    """The summed negative log-likelihoods (nats) of the answers to a question.

    `matched_tokens`: with how many tokens of the first answer the model's own greedy answer begins.
    """

    losses: list[float]
    matched_tokens: int


def score_answers(network: Any, groups: Sequence[Sequence[Example]], *, pad: int, token_budget: int) -> list[Answers]:
    """Score each group of examples: the answers to a question, the right one first.

    The examples of a group begin alike: the beginning is computed once.
    """
    firsts = {group[0] for group in groups}

    def sum_losses(
        examples: list[Example], logits: torch.Tensor, labels: torch.Tensor
    ) -> dict[Example, tuple[float, int]]:
        losses = _losses(logits, labels).cpu().double()
        of_first = [example in firsts for example in examples for _ in range(example.answer_tokens)]
        chosen = torch.tensor(of_first, device=logits.device)
        hits = (logits[chosen].argmax(-1) == labels[chosen]).cpu()
        first = [example for example in examples if example in firsts]
        matched = {example: count_leading_hits(part.tolist()) for example, part in _by_example(first, hits)}
        return {
            example: (float(part.sum()), matched.get(example, 0)) for example, part in _by_example(examples, losses)
        }

    found = _score_labels(network, [list(dict.fromkeys(group)) for group in groups], pad, token_budget, sum_losses)
    return [Answers([found[example][0] for example in group], found[group[0]][1]) for group in groups]


def _losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return negative log-likelihoods in fp32: (labels, vocabulary), (labels,) -> (labels,)."""
    return functional.cross_entropy(logits.float(), labels, reduction="none")


def every_token_loss(network: Any, examples: Sequence[Example], *, pad: int, token_budget: int) -> list[list[float]]:
    """Return the negative log-likelihood of each label of each example, in nats, in the order given."""
    return [scores.losses for scores in label_scores(network, examples, pad=pad, token_budget=token_budget)]


def label_scores(network: Any, examples: Sequence[Example], *, pad: int, token_budget: int) -> list[LabelScores]:
    """Return losses and hits of one pass over each example, in the order given; no logits are kept."""

    def list_scores(chosen: list[Example], logits: torch.Tensor, labels: torch.Tensor) -> dict[Example, LabelScores]:
        losses, hits = _losses(logits, labels).cpu(), (logits.argmax(-1) == labels).cpu()
        pairs = zip(_by_example(chosen, losses), _by_example(chosen, hits), strict=True)
        return {example: LabelScores(lost.tolist(), hit.tolist()) for (example, lost), (_, hit) in pairs}

    found = _score_labels(network, [[example] for example in dict.fromkeys(examples)], pad, token_budget, list_scores)
    return [found[example] for example in examples]


Result = TypeVar("Result")
Passes = Iterator[tuple[list[Example], torch.Tensor, torch.Tensor]]
"""Of each pass its examples, the logits (labels, vocabulary) of all their labels, and the labels."""
Summarise = Callable[[list[Example], torch.Tensor, torch.Tensor], dict[Example, Result]]


def _score_labels(
    network: Any, groups: Sequence[Sequence[Example]], pad: int, token_budget: int, summarise: Summarise[Result]
) -> dict[Example, Result]:
    """Return the summary of every example of every group, each read once.

    What a model keeps of shared beginnings counts in the budget.
    """
    threads, workers = parallel.threads_for(network, token_budget), parallel.workers_for(network, token_budget)
    token_budget //= threads
    alone, shared = shared_prefix.split(groups, kv_cache.reach(network))
    jobs: list[tuple[int, int, Callable[[Any], Passes]]] = []  # tokens and examples of each
    lengths = [part.tokens for part in alone]
    for rows in batches(lengths, parallel.job_tokens(sum(lengths), token_budget, workers)):
        parts = [alone[row] for row in rows]
        jobs.append((sum(lengths[row] for row in rows), len(parts), partial(_whole, parts, pad)))
    starts = [group[0].start for group in shared]
    for numbers in batches(starts, parallel.job_tokens(sum(starts), token_budget, workers)):
        chosen = [shared[number] for number in numbers]
        under = [part.tokens for group in chosen for part in group]
        tokens = sum(starts[number] for number in numbers) + sum(under)
        jobs.append((tokens, len(under), partial(_after_trunks, chosen, pad, token_budget)))
    jobs.sort(key=lambda job: -job[0])  # the longest first, so that all end together

    counter = Counter("answers", sum(count for _, count, _ in parallel.share_of_rank(jobs)))

    def run(passes: Callable[[Any], Passes], model: Any) -> list[dict[Example, Result]]:
        found = []
        for examples, logits, labels in passes(model):
            found.append(summarise(examples, logits, labels))
            counter.add(len(examples))
        return found

    results = parallel.run_all(network, [partial(run, passes) for *_, passes in jobs], threads)
    return {example: result for parts in results for found in parts for example, result in found.items()}


def _whole(parts: list[shared_prefix.Part], pad: int, network: Any) -> Passes:
    """Give the head the positions before labels alone: a label of 2,048 to 150,000 logits is much of a pass."""
    batch = shared_prefix.collate(parts, pad, network.device)
    with kv_cache.chosen_positions(network, batch.choose):
        logits = network(input_ids=batch.input_ids, attention_mask=batch.mask, use_cache=False).logits[0]
    yield [part.example for part in parts], logits, batch.labels


def _after_trunks(groups: list[list[shared_prefix.Part]], pad: int, token_budget: int, network: Any) -> Passes:
    trunks = shared_prefix.Trunks(network, [group[0].example.input_ids[: group[0].start] for group in groups], pad)
    under = list(shared_prefix.numbered(groups))
    for rows in batches([trunks.mask.shape[1] + part.tokens for part in under], token_budget):
        parts = [under[row] for row in rows]
        batch = shared_prefix.collate(parts, pad, network.device)
        yield [part.example for part in parts], trunks.logits(parts, batch), batch.labels


def _by_example(examples: Sequence[Example], values: torch.Tensor) -> Iterator[tuple[Example, torch.Tensor]]:
    """Yield each example with its labels' part of the values (labels of all,)."""
    return zip(examples, values.split([example.answer_tokens for example in examples]), strict=True)


def generate(
    network: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    token_budget: int,
    new_tokens: int,
    total: bool,
    begun: Sequence[tuple[Example, int]] | None = None,
) -> list[str]:
    """Return greedy continuations, special tokens removed; `total`: `new_tokens` counts the prompt as well.

    `begun`: of each prompt an example, and with how many of its labels the model goes on (`Answers.matched_tokens`).
    """
    encoded = [tuple(ids) for ids in tokenizer(list(prompts))["input_ids"]] if prompts else []
    ended = tokenizer.eos_token_id
    encoded = [ids[:-1] if ids and ids[-1] == ended else ids for ids in encoded]
    limits = [max(new_tokens - len(ids), 0) if total else new_tokens for ids in encoded]
    known = [_known(ids, *one) for ids, one in zip(encoded, begun, strict=True)] if begun else None
    continued = continuations(network, tokenizer, encoded, token_budget=token_budget, limits=limits, known=known)
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in continued]


def _known(prompt: tuple[int, ...], example: Example, matched_tokens: int) -> tuple[int, ...]:
    """Return what is known of the answer: nothing if the prompt is another, as where a token has a part of both."""
    start = example.answer_start
    return example.input_ids[start : start + matched_tokens] if example.input_ids[:start] == prompt else ()


def continuations(
    network: Any,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    *,
    token_budget: int,
    limits: Sequence[int],
    known: Sequence[Sequence[int]] | None = None,
) -> list[list[int]]:
    """Return the ids that follow each prompt's, greedily, up to the end-of-sequence token and without it.

    `known`: with what each is known to begin: it is read like the prompt, all at once, instead of one by one.
    Four times the tokens of a pass: of most of them only keys and values are there.
    """
    end, pad = tokenizer.eos_token_id, pad_of(tokenizer)
    if known is None or not generation.is_plain(network):
        known = [()] * len(prompts)
    begun = [list(ids[:limit]) for ids, limit in zip(known, limits, strict=True)]
    left = [0 if end in ids else limit - len(ids) for ids, limit in zip(begun, limits, strict=True)]
    asked = [[*prompt, *ids] for prompt, ids in zip(prompts, begun, strict=True)]
    found = generation.continuations(network, asked, left, end=end, pad=pad, token_budget=4 * token_budget)
    return [(ids[: ids.index(end)] if end in ids else ids) + more for ids, more in zip(begun, found, strict=True)]


def batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Yield row numbers grouped by length, longest first, each group within `token_budget` padded tokens."""
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    start = 0
    while start < len(order):
        size = max(1, token_budget // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def count_leading_hits(hits: Sequence[bool]) -> int:
    """Return how many there are before the first miss."""
    return sum(1 for _ in takewhile(bool, hits))
