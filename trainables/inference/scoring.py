"""Losses of given answers."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from trainables.common.tokenized_row import Example
from trainables.config.settings import LABELS_PER_CHUNK
from trainables.inference import padded_batch
from trainables.inference.passes import run_items_in_passes

MIN_LOG_LIKELIHOOD_VARIANCE = 1e-6
"""open-unlearning's guard: where all the probability is on one token."""


class LabelScores(NamedTuple):
    """Negative log-likelihood (nats) of each label of an example, and whether it is the likeliest token (`hits`).

    `standardised`: the log-likelihood less its mean over the vocabulary, over the deviation there (Min-K++).
    """

    losses: list[float]
    hits: list[bool]
    standardised: list[float] | None = None

    @property
    def total_loss(self) -> float:
        """The sum of the losses, in float64."""
        return float(torch.tensor(self.losses, dtype=torch.float64).sum())


@torch.no_grad()
def score_examples(
    network: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    token_budget: int,
    standardise: Collection[Example] = (),
) -> list[LabelScores]:
    """Score examples, equal ones once; `token_budget`: tokens of all examples of a pass, padding included."""
    padded_batch.check_positions(network, examples)
    pad = padded_batch.choose_padding_token(tokenizer)
    lengths = {example: len(example.input_ids) for example in examples}
    lengths = dict(sorted(lengths.items(), key=lambda one: -one[1]))  # so that ranks have about the same to do

    def run(group: list[Example]) -> dict[Example, LabelScores]:
        batch = padded_batch.pad_examples(group, pad)
        # the head is given no other positions; padding on the right is seen by no label, and attention needs no mask
        keep = padded_batch.find_label_predicting_positions(batch["labels"]).to(network.device)
        output = network(input_ids=batch["input_ids"].to(network.device), use_cache=False, logits_to_keep=keep)
        logits = padded_batch.select_logits(output, keep)
        labels = batch["labels"][batch["labels"] != padded_batch.IGNORED_LABEL].to(logits.device)
        parts = []
        for some, right in zip(logits.split(LABELS_PER_CHUNK), labels.split(LABELS_PER_CHUNK), strict=True):
            losses = functional.cross_entropy(some.float(), right, reduction="none")
            parts.append(torch.stack([losses, (some.argmax(-1) == right).float()]))
        scores = torch.cat(parts, dim=1).cpu()  # the host waits once for a batch
        counts = [example.answer_token_count for example in group]
        scored = {}
        for example, own, (lost, hit) in zip(group, logits.split(counts), scores.split(counts, dim=1), strict=True):
            standardised = _standardise(own.float(), lost).tolist() if example in standardise else None
            scored[example] = LabelScores(lost.tolist(), hit.bool().tolist(), standardised)
        return scored

    found = run_items_in_passes("answers", run, lengths, token_budget)
    return [found[example] for example in examples]


def _standardise(logits: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
    """Return (-loss - mean) / deviation of the log-likelihoods over the vocabulary: (labels,). Zhang et al., 2025."""
    logs = logits.log_softmax(-1)
    shares = logs.exp()
    mean = (shares * logs).sum(-1)
    variance = (shares * logs.square()).sum(-1) - mean.square()
    return (-losses - mean.cpu()) / variance.clamp(min=MIN_LOG_LIKELIHOOD_VARIANCE).sqrt().cpu()
