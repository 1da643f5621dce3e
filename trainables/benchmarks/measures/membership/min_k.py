"""Membership by Min-40 % (Shi et al., 2023): the mean loss of the 40 % least likely tokens, the end token left out."""

from __future__ import annotations

from trainables.benchmarks import metrics
from trainables.benchmarks.measures import Measure

MEASURE = Measure(
    score=lambda row: -metrics.min_k_mean([-loss for loss in row["losses"][:-1]]),
    reads=("losses",),
    best="lowest",
    short="Min-K AUC",
    title="membership by Min-40 %",
    on_request=("tofu",),
    membership=True,
)
