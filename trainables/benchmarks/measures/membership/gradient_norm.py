"""Membership by the gradient of a row's loss: its mean norm over the parameters (open-unlearning's gradnorm)."""

from __future__ import annotations

from trainables.benchmarks.measures import Measure

MEASURE = Measure(
    score=lambda row: row["gradient_norm"],
    reads=("gradient_norm",),
    best="lowest",
    short="gradient AUC",
    title="membership by gradient norm",
    on_request=("tofu",),
    membership=True,
    slow=True,
)
