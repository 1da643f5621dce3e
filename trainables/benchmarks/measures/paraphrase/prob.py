"""The probability of the paraphrased answer, normalised by its length (open-unlearning's PARA_Prob)."""

from __future__ import annotations

import math

from trainables.benchmarks.measures import Measure

MEASURE = Measure(
    score=lambda row: math.exp(-row["paraphrase_loss"] / row["paraphrase_tokens"]),
    reads=("paraphrase_loss", "paraphrase_tokens"),
    best="lowest",
    short="prob, paraphrase",
    title="probability of the paraphrased answer",
    on_request=("tofu",),
    tasks=("forget",),
)
