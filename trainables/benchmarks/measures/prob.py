"""The probability of an answer, normalised by its length: exp(-mean loss)."""

from __future__ import annotations

import numpy as np

from trainables.benchmarks.measures import Measure

MEASURE = Measure(
    score=lambda row: float(np.exp(-row["loss"])),
    reads=("loss",),
    best="lowest",
    short="prob",
    title="probability",
    benchmarks=("own",),
)
