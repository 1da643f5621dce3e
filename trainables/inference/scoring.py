"""Losses of given answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from trainables.common.tokenized_row import Example
from trainables.inference import kv_cache, shared_prefix, threads_and_ranks
from trainables.inference.progress import Counter

LEAST_VARIANCE = 1e-6
"""open-unlearning's guard: where all the probability is on one token."""


class LabelScores(NamedTuple):
    """Negative log-likelihood (nats) of each label of an example, and whether the label is the likeliest token.

    `standardised`, where asked for: the log-likelihood less its mean over the vocabulary under the model's own
    distribution, over the deviation there (Min-K++).
    """

    losses: list[float]
    hits: list[bool]
    standardised: list[float] | None = None

    @property
    def total_loss(self) -> float:
        """The sum of the losses, in float64."""
        return float(torch.tensor(self.losses, dtype=torch.float64).sum())


Passes = Iterator[tuple[list[Example], torch.Tensor, torch.Tensor]]
"""For each pass: its examples, the logits (labels, vocabulary) of all their labels, and the labels."""


def score_labels(
    network: Any,
    groups: Sequence[Sequence[Example]],
    *,
    pad: int,
    token_budget: int,
    standardise: Collection[Example] = (),
) -> list[list[LabelScores]]:
    """Score each example of each group, such as the answers to a question: what a group shares is read once.

    Keys and values of shared beginnings count in the budget.
    """
    threads = threads_and_ranks.threads_for(network, token_budget)
    workers = threads_and_ranks.workers_for(network, token_budget)
    token_budget //= threads

    def divide(lengths: list[int]) -> Iterator[list[int]]:
        most = threads_and_ranks.job_tokens(sum(lengths), token_budget, workers)
        return threads_and_ranks.group_by_length(lengths, most)

    distinct = list(dict.fromkeys(tuple(dict.fromkeys(group)) for group in groups))
    whole, sharing = shared_prefix.split_groups(distinct, kv_cache.attention_window(network))
    jobs: list[tuple[int, int, Callable[[Any], Passes]]] = []  # tokens and examples of each
    lengths = [suffix.tokens for suffix in whole]
    for rows in divide(lengths):
        chosen = [whole[row] for row in rows]
        jobs.append((sum(lengths[row] for row in rows), len(chosen), partial(_read_whole, chosen, pad)))
    starts = [group[0].start for group in sharing]
    for numbers in divide(starts):
        suffixes = [suffix._replace(group=k) for k, number in enumerate(numbers) for suffix in sharing[number]]
        tokens = sum(starts[number] for number in numbers) + sum(suffix.tokens for suffix in suffixes)
        jobs.append((tokens, len(suffixes), partial(_read_after_prefixes, suffixes, pad, token_budget)))
    jobs.sort(key=lambda job: -job[0])  # the longest first, so that all end together
    counter = Counter("answers", sum(count for _, count, _ in threads_and_ranks.share_of_rank(jobs)))

    def run(passes: Callable[[Any], Passes], model: Any) -> dict[Example, LabelScores]:
        found = {}
        for examples, logits, labels in passes(model):
            found |= _scores(examples, logits, labels, standardise)
            counter.add(len(examples))
        return found

    results = threads_and_ranks.run_all(network, [partial(run, passes) for *_, passes in jobs], threads)
    found = {example: scores for result in results for example, scores in result.items()}
    return [[found[example] for example in group] for group in groups]


def _read_whole(suffixes: list[shared_prefix.Suffix], pad: int, network: Any) -> Passes:
    """Give the head the positions before labels alone: a label of 2,048 to 150,000 logits is much of a pass."""
    batch = shared_prefix.collate(suffixes, pad, network.device)
    given = {"input_ids": batch.input_ids, "attention_mask": batch.mask, "use_cache": False}
    output = network(**given, logits_to_keep=batch.keep)
    yield [suffix.example for suffix in suffixes], kv_cache.select_logits(output, batch.keep), batch.labels


def _read_after_prefixes(suffixes: list[shared_prefix.Suffix], pad: int, token_budget: int, network: Any) -> Passes:
    prefixes = shared_prefix.Prefixes(network, suffixes, pad)
    for rows in threads_and_ranks.group_by_length(
        [prefixes.mask.shape[1] + suffix.tokens for suffix in suffixes], token_budget
    ):
        chosen = [suffixes[row] for row in rows]
        batch = shared_prefix.collate(chosen, pad, network.device)
        yield [suffix.example for suffix in chosen], prefixes.logits(chosen, batch), batch.labels


def _scores(
    examples: list[Example], logits: torch.Tensor, labels: torch.Tensor, standardise: Collection[Example]
) -> dict[Example, LabelScores]:
    """Return losses in fp32, hits and standardised log-likelihoods, from (labels, vocabulary) and (labels,)."""
    losses = functional.cross_entropy(logits.float(), labels, reduction="none").cpu()
    hits = (logits.argmax(-1) == labels).cpu()
    counts = [example.answer_tokens for example in examples]
    found = {}
    for example, lost, hit, part in zip(
        examples, losses.split(counts), hits.split(counts), logits.split(counts), strict=True
    ):
        standardised = _standardise(part, lost).tolist() if example in standardise else None
        found[example] = LabelScores(lost.tolist(), hit.tolist(), standardised)
    return found


def _standardise(logits: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
    """Return (-loss - mean) / deviation of the log-likelihoods over the vocabulary: (labels,). Zhang et al., 2025."""
    logs = logits.float().log_softmax(-1)
    shares = logs.exp()
    mean = (shares * logs).sum(-1)
    variance = (shares * logs.square()).sum(-1) - mean.square()
    return (-losses - mean.cpu()) / variance.clamp(min=LEAST_VARIANCE).sqrt().cpu()
