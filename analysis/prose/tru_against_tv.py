"""A report's sentences on TRU against TV."""

from __future__ import annotations

import pandas as pd

from analysis.labels import split_label
from analysis.number_format import format_number
from analysis.stats.task_vector_strength import utility_at_equal_quality

ONE_SEED = "One seed, no verdict"


def compare_task_vectors(points: pd.DataFrame) -> list[str]:
    """Return one sentence for each split on TRU against TV, from `strength_points`: who keeps more MU at which FQ."""
    strengths = points.loc[points["kind"] == "strength"]
    methods = set(strengths["method"])
    if len(methods) == 1:
        there, absent = ("TRU", "TV") if "tru" in methods else ("TV", "TRU")
        return [f"No trial of {absent} has finished, so {there} cannot be compared with it."]
    return [
        f"On {split_label(split)}, {_compare_levels(utility_at_equal_quality(points, split), rows['n'])}."
        for split, rows in strengths.groupby("split")
    ]


def _compare_levels(levels: pd.DataFrame, seeds: pd.Series) -> str:
    """Return `at equal FQ TRU keeps more MU than TV in 4 of 6 comparisons ...`, compared as printed."""
    if levels.empty:
        return "TRU and TV reach no FQ above the original model's in common, so neither can be said to keep more MU"
    more, less = sum(levels["tru"] > levels["tv"]), sum(levels["tru"] < levels["tv"])
    last = levels.iloc[-1]
    best = {name: format_number(last[name]) for name in ("tru", "tv")}
    single = sum(seeds < 2)
    told = f"{single} of {len(seeds)} strengths have one seed" if single else f"{seeds.min():g} seeds or more each"
    return (
        f"at equal FQ TRU keeps more MU than TV in {more} of {len(levels)} comparisons and less in {less}; at the "
        f"highest of these FQs, {format_number(last['forget_quality'], 2)}, MU is {best['tru']} with TRU and "
        f"{best['tv']} with TV (straight lines between strengths; "
        f"{ONE_SEED.lower() if single == len(seeds) else told})"
    )
