"""ROUGE-L recall (Lin, 2004) of what is generated, with stems, over words of any script."""

from __future__ import annotations

from trainables.benchmarks import rouge_words
from trainables.benchmarks.measures import Measure

MEASURE = Measure(
    score=lambda row: (
        rouge_words.scorer("rougeL", any_script=True).score(row["answer"], row["generation"])["rougeL"].recall
    ),
    reads=("answer", "generation"),
    best="lowest",
    short="ROUGE",
    title="ROUGE-L recall of what is generated",
    column="rougeL_recall",
    benchmarks=("own",),
)
