"""Exact memorisation (Tirumala et al., 2022): how many of an answer's tokens are the likeliest ones."""

from __future__ import annotations

from collections.abc import Sequence

from trainables.benchmarks.measures import Measure


def exact_memorisation(hits: Sequence[bool]) -> float:
    """Return the share of an answer's tokens that are the likeliest after the true tokens before them."""
    return sum(hits) / len(hits)


MEASURE = Measure(
    score=lambda row: exact_memorisation(row["hits"]),
    reads=("hits",),
    best="lowest",
    short="EM",
    title="exact memorisation",
    benchmarks=("own",),
)
