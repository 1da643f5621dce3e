"""ROUGE-L recall (Lin, 2004) of the paraphrased answer in what is generated (open-unlearning's PARA_ROUGE)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainables.benchmarks import rouge_words
from trainables.benchmarks.measures import Measure


def _recall(row: Mapping[str, Any]) -> float:
    return rouge_words.scorer("rouge1", "rougeL").score(row["paraphrase"], row["generation"])["rougeL"].recall


MEASURE = Measure(
    score=_recall,
    reads=("paraphrase", "generation"),
    best="lowest",
    short="ROUGE, paraphrase",
    title="ROUGE-L recall of the paraphrased answer",
    on_request=("tofu",),
    tasks=("forget",),
)
