"""Membership by loss over the bytes of the zlib-compressed answer (Carlini et al., 2021)."""

from __future__ import annotations

import zlib

import numpy as np

from trainables.benchmarks.measures import Measure

MEASURE = Measure(
    score=lambda row: float(np.mean(row["losses"])) / len(zlib.compress(row["answer_text"].encode())),
    reads=("losses", "answer_text"),
    best="lowest",
    short="zlib AUC",
    title="membership by loss over compressed length",
    on_request=("muse", "tofu"),
    membership=True,
)
