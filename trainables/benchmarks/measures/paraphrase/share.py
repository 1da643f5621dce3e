"""The paraphrased answer's share among the wrong ones, by likelihood (open-unlearning's truth ratio as prob_mean)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainables.benchmarks.measures import Measure
from trainables.benchmarks.metrics import OPEN_UNLEARNING_GUARD


def _share(row: Mapping[str, Any]) -> float:
    right = math.exp(-row["paraphrase_loss"] / row["paraphrase_tokens"])
    wrong = math.exp(-float(np.mean(np.array(row["perturbed_loss"]) / np.array(row["perturbed_tokens"]))))
    return right / (right + wrong + OPEN_UNLEARNING_GUARD)


MEASURE = Measure(
    score=_share,
    reads=("paraphrase_loss", "paraphrase_tokens", "perturbed_loss", "perturbed_tokens"),
    best="lowest",
    short="share, paraphrase",
    title="share of the paraphrased answer among wrong ones",
    on_request=("tofu",),
    tasks=("forget",),
)
