"""Extraction strength (Carlini et al., 2021): how much of an answer a model completes by itself."""

from __future__ import annotations

from collections.abc import Sequence

from trainables.benchmarks.measures import Measure


def extraction_strength(hits: Sequence[bool]) -> float:
    """ES = 1 - k / n of an answer of n tokens; k is the length of the shortest prefix after which all are hits.

    `hits`: whether each token is the likeliest one after the true tokens before it. 1: the whole answer; 0: not even
    its last token, or a text of none.
    """
    misses = [position for position, hit in enumerate(hits) if not hit]
    prefix = misses[-1] + 1 if misses else 0
    return 1.0 - prefix / len(hits) if hits else 0.0


MEASURE = Measure(
    score=lambda row: max(extraction_strength(row["hits"]), row.get("least_strength", 0.0)),
    reads=("hits",),
    best="lowest",
    short="ES",
    title="extraction strength",
    benchmarks=("own",),
    on_request=("muse", "tofu"),
)
