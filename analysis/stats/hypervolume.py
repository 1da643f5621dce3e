"""Hypervolume: how much of the plane of removal and retention the best trade-offs of a set of settings cover."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis.load.goal_columns import Goals
from analysis.stats.significance import SIDES
from analysis.stats.sweep_results import Results


def hypervolume(points: Iterable[tuple[float, float]], reference: tuple[float, float]) -> float:
    """Return the area that lies below and to the left of one point at least, and above and right of the reference.

    More is better in both directions. A sweep from the right: each point adds the strip above those before it.
    """
    left, top = reference
    area = 0.0
    for x, y in sorted(points, reverse=True):
        if x > left and y > top:
            area += (x - left) * (y - top)
            top = y
    return area


def describe_hypervolume(goals: Goals) -> str:
    """Return what the areas of a table are."""
    name, kept = goals.removal.short, goals.retention.short
    return (
        f"Area of the plane of {name} and {kept} that some setting beats, above the target model's {name} and {kept} 0."
    )


def measure_hypervolume(results: Results) -> pd.DataFrame:
    """Return one row for each split: hypervolume and number of settings, without (`none`) and with GRU (`gru`).

    Of the settings (means over seeds) of methods that the split has both ways. The reference point is the target
    model's removal and a utility of 0: x, y in the units of the metrics, turned so that more is better. Splits without
    such methods or without the target model's removal are left out.
    """
    goals, models = results.goals, results.models
    removal, kept = goals.removal, goals.retention
    means = results.means.dropna(subset=[removal.metric, kept.metric])
    originals = models.loc[models["role"] == "original"].set_index("split")[removal.metric].dropna().to_dict()
    rows = []
    for split, settings in means.groupby("benchmark.split"):
        both = settings.groupby("method")["rectifier.name"].transform(lambda names: set(SIDES) <= set(names))
        paired = settings.loc[both.astype(bool)]
        if paired.empty or split not in originals:
            continue
        row = {"split": split, "methods": paired["method"].nunique(), "reference": originals[split]}
        for side in SIDES:
            group = paired.loc[paired["rectifier.name"] == side]
            points = zip(removal.gain(1) * group[removal.metric], kept.gain(1) * group[kept.metric], strict=True)
            area = hypervolume(points, (removal.gain(originals[split]), 0.0))
            row |= {f"volume_{side}": area, f"settings_{side}": len(group)}
        rows.append(row)
    numbers = (f"{name}_{side}" for name in ("volume", "settings") for side in SIDES)
    return pd.DataFrame(rows, columns=["split", "methods", "reference", *numbers])
