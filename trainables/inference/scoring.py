"""Losses of given answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from trainables.common.tokenized_row import Example
from trainables.inference.padded_batch import IGNORED, before_labels, collate, group_by_length, pad_of, select_logits
from trainables.inference.progress import Counter
from trainables.inference.ranks import run_shares

LEAST_VARIANCE = 1e-6
"""open-unlearning's guard: where all the probability is on one token."""


class LabelScores(NamedTuple):
    """Negative log-likelihood (nats) of each label of an example.

    `hits`: whether each label is the likeliest token. `standardised`, where asked for: the log-likelihood less its
    mean over the vocabulary under the model's own distribution, over the deviation there (Min-K++).
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
    """Score each example of each group, such as the answers to a question.

    `token_budget`: tokens of all examples of a pass, padding included.
    """

    def run(examples: Sequence[Example]) -> dict[Example, LabelScores]:
        counter, found = Counter("answers", len(examples)), {}
        for rows in group_by_length([len(example.input_ids) for example in examples], token_budget):
            batch = [examples[row] for row in rows]
            found |= _score_batch(network, batch, pad, standardise)
            counter.add(len(batch))
        return found

    distinct = {example: None for group in groups for example in group}
    found = run_shares(run, sorted(distinct, key=lambda example: -len(example.input_ids)))
    return [[found[example] for example in group] for group in groups]


def score_each(
    network: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    token_budget: int,
    standardise: Collection[Example] = (),
) -> list[LabelScores]:
    """Score examples that are in no groups."""
    groups, settings = [[example] for example in examples], {"pad": pad_of(tokenizer), "token_budget": token_budget}
    return [one for (one,) in score_labels(network, groups, **settings, standardise=standardise)]


def read_labels(network: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the logits (labels, vocabulary) of a collated batch's labels.

    The head is given no other positions: a label of 2,048 to 150,000 logits is much of a pass. Padding is on the right,
    where no label of a causal model sees it, and attention needs no mask.
    """
    keep = before_labels(batch["labels"]).to(network.device)
    input_ids = batch["input_ids"].to(network.device)
    return select_logits(network(input_ids=input_ids, use_cache=False, logits_to_keep=keep), keep)


def _score_batch(
    network: Any, examples: Sequence[Example], pad: int, standardise: Collection[Example]
) -> dict[Example, LabelScores]:
    batch = collate(examples, pad)
    logits = read_labels(network, batch).float()
    labels = batch["labels"][batch["labels"] != IGNORED].to(logits.device)
    losses = functional.cross_entropy(logits, labels, reduction="none").cpu()
    hits = (logits.argmax(-1) == labels).cpu()
    counts = [example.answer_tokens for example in examples]
    found = {}
    for example, own, lost, hit in zip(
        examples, logits.split(counts), losses.split(counts), hits.split(counts), strict=True
    ):
        standardised = _standardise(own, lost).tolist() if example in standardise else None
        found[example] = LabelScores(lost.tolist(), hit.tolist(), standardised)
    return found


def _standardise(logits: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
    """Return (-loss - mean) / deviation of the log-likelihoods over the vocabulary: (labels,). Zhang et al., 2025."""
    logs = logits.log_softmax(-1)
    shares = logs.exp()
    mean = (shares * logs).sum(-1)
    variance = (shares * logs.square()).sum(-1) - mean.square()
    return (-losses - mean.cpu()) / variance.clamp(min=LEAST_VARIANCE).sqrt().cpu()
