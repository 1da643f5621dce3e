"""Membership by loss (Yeom et al., 2018): rows that were trained on have a lower mean loss."""

from __future__ import annotations

import numpy as np

from trainables.benchmarks.measures import Measure

MEASURE = Measure(
    score=lambda row: float(np.mean(row["losses"])),
    reads=("losses",),
    best="lowest",
    short="loss AUC",
    title="membership by loss",
    on_request=("muse", "tofu"),
    membership=True,
)
