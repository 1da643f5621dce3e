"""Membership by the loss above the retain model's on the same row (Carlini et al., 2022, with that one reference)."""

from __future__ import annotations

import numpy as np

from trainables.benchmarks.measures import Measure

MEASURE = Measure(
    score=lambda row: float(np.mean(row["losses"])) - row["reference_loss"],
    reads=("losses", "reference_loss"),
    best="lowest",
    short="reference AUC",
    title="membership by loss above the retain model's",
    on_request=("tofu",),
    membership=True,
)
