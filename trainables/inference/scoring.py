"""Losses of given answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from trainables.common.tokenized_row import Example
from trainables.inference import kv_cache, packed_rows, threads_and_ranks
from trainables.inference.padded_batch import before_labels, collate
from trainables.inference.progress import Counter

LEAST_VARIANCE = 1e-6
"""open-unlearning's guard: where all the probability is on one token."""


class LabelScores(NamedTuple):
    """Negative log-likelihood (nats) of each label of an example.

    `hits`, of the first example of a group alone: whether each label is the likeliest token. `standardised`, where
    asked for: the log-likelihood less its mean over the vocabulary under the model's own distribution, over the
    deviation there (Min-K++).
    """

    losses: list[float]
    hits: list[bool]
    standardised: list[float] | None = None

    @property
    def total_loss(self) -> float:
        """The sum of the losses, in float64."""
        return float(torch.tensor(self.losses, dtype=torch.float64).sum())


@torch.no_grad()
def score_labels(
    network: Any,
    groups: Sequence[Sequence[Example]],
    *,
    pad: int,
    token_budget: int,
    standardise: Collection[Example] = (),
) -> list[list[LabelScores]]:
    """Score each example of each group, such as the answers to a question: what they begin with is read once.

    `token_budget`: tokens of all examples of a pass, padding and what they share included.
    """
    threads = threads_and_ranks.threads_for(network, token_budget)
    workers = threads_and_ranks.workers_for(network, token_budget)
    distinct = [dict.fromkeys(sorted(group, key=lambda example: example.input_ids)) for group in groups]
    longest = max((len(example.input_ids) for group in distinct for example in group), default=0)
    firsts = {group[0] for group in groups if group}

    def run(chosen: list[Example], model: Any) -> dict[Example, LabelScores]:
        if packed:
            one_row = packed_rows.pack(chosen, model.device)
            logits, rows = packed_rows.read_logits(model, one_row), one_row.labels_read
        else:
            logits = read_labels(model, collate(chosen, pad))
            rows = torch.arange(len(logits), device=logits.device)
        counter.add(len(chosen))
        return _scores(chosen, logits, rows, firsts, standardise)

    with packed_rows.packing(network, longest) as packed:
        lengths: dict[Example, int] = {}
        for group in distinct:
            lengths |= {example: len(example.input_ids) for example in group}
            if packed:  # those that share tokens come into the same pass
                lengths |= dict.fromkeys(group, max((lengths[example] for example in group), default=0))
        most = threads_and_ranks.job_tokens(sum(lengths.values()), token_budget // threads, workers)
        examples = list(lengths)
        numbers = threads_and_ranks.group_by_length(list(lengths.values()), most)
        jobs = [[examples[number] for number in chosen] for chosen in numbers]
        counter = Counter("answers", sum(map(len, threads_and_ranks.share_of_rank(jobs))))
        results = threads_and_ranks.run_all(network, [partial(run, chosen) for chosen in jobs], threads)
    found = {example: scores for result in results for example, scores in result.items()}
    return [[found[example] for example in group] for group in groups]


def read_labels(network: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the logits (labels, vocabulary) of a collated batch's labels.

    The head is given no other positions: a label of 2,048 to 150,000 logits is much of a pass.
    """
    given = {name: part.to(network.device) for name, part in batch.items()}
    keep = before_labels(given.pop("labels"))
    return kv_cache.select_logits(network(**given, use_cache=False, logits_to_keep=keep), keep)


def _scores(
    examples: list[Example],
    logits: torch.Tensor,
    rows: torch.Tensor,
    firsts: Collection[Example],
    standardise: Collection[Example],
) -> dict[Example, LabelScores]:
    """Return losses in fp32 from logits (N, vocabulary), with hits of the examples in `firsts`.

    `rows` (labels,): the number of the logits that predict each label.
    """
    labels = torch.tensor([label for one in examples for label in one.input_ids[one.answer_start :]]).to(rows)
    losses = -logits.float().log_softmax(-1)[rows, labels].cpu()
    counts = [example.answer_tokens for example in examples]
    found = {}
    for example, lost, part, own in zip(
        examples, losses.split(counts), rows.split(counts), labels.split(counts), strict=True
    ):
        hits = (logits[part].argmax(-1) == own).tolist() if example in firsts else []
        standardised = _standardise(logits[part], lost).tolist() if example in standardise else None
        found[example] = LabelScores(lost.tolist(), hits, standardised)
    return found


def _standardise(logits: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
    """Return (-loss - mean) / deviation of the log-likelihoods over the vocabulary: (labels,). Zhang et al., 2025."""
    logs = logits.float().log_softmax(-1)
    shares = logs.exp()
    mean = (shares * logs).sum(-1)
    variance = (shares * logs.square()).sum(-1) - mean.square()
    return (-losses - mean.cpu()) / variance.clamp(min=LEAST_VARIANCE).sqrt().cpu()
