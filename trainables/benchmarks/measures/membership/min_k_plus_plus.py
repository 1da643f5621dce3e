"""Membership by Min-40 %++ (Zhang et al., 2025): Min-K of log-likelihoods standardised over the vocabulary."""

from __future__ import annotations

from trainables.benchmarks import metrics
from trainables.benchmarks.measures import Measure

MEASURE = Measure(
    score=lambda row: -metrics.min_k_mean(row["standardised"][:-1]),
    reads=("standardised",),
    best="lowest",
    short="Min-K++ AUC",
    title="membership by Min-40 %++",
    on_request=("muse", "tofu"),
    membership=True,
)
