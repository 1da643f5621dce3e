"""ROUGE-L recall (Lin, 2004) of the paraphrased answer in what is generated (open-unlearning's PARA_ROUGE)."""

from __future__ import annotations

from trainables.benchmarks import rouge_words
from trainables.benchmarks.measures import Measure

MEASURE = Measure(
    score=lambda row: (
        rouge_words.scorer("rouge1", "rougeL").score(row["paraphrase"], row["generation"])["rougeL"].recall
    ),
    reads=("paraphrase", "generation"),
    best="lowest",
    short="ROUGE, paraphrase",
    title="ROUGE-L recall of the paraphrased answer",
    on_request=("tofu",),
    tasks=("forget",),
)
