"""Exact memorisation (Tirumala et al., 2022): how many of an answer's tokens are the likeliest ones."""

from __future__ import annotations

from trainables.benchmarks.measures import Measure

MEASURE = Measure(
    score=lambda row: sum(row["hits"]) / max(1, len(row["hits"])),
    reads=("hits",),
    best="lowest",
    short="EM",
    title="exact memorisation",
    benchmarks=("own",),
    on_request=("muse", "tofu"),
)
