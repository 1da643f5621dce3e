"""Hypervolume: how much of the plane of removal and retention the best trade-offs of a set of settings cover."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import pandas as pd

from analysis.load.goals import Goals
from analysis.stats.results import Results
from analysis.stats.selection import STUDY

SIDES = ("none", "gru")


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


def unit(goals: Goals) -> str:
    """Return what areas are measured in: `ln p x MU` on TOFU."""
    removal = "ln p" if goals.x.column == "forget_quality" else goals.x_short
    return f"{removal} × {goals.retention.short}"


def explained(goals: Goals) -> str:
    """Return what the areas of a table are."""
    name = goals.x_short
    return (
        f"Hypervolume: the part of the plane of {name} and {goals.retention.short} that some setting beats, "
        f"bounded by the target model's {name} and {goals.retention.short} 0, in units of {unit(goals)}."
    )


def table(results: Results) -> pd.DataFrame:
    """Return one row a split: hypervolume and number of settings, without (`none`) and with GRU (`gru`).

    Of the settings (means over seeds) of methods that the split has both ways. The reference point is the target
    model's removal and a utility of 0: x, y in the units of the metrics, turned so that more is better. Splits without
    such methods or without the target model's removal are left out.
    """
    goals, references = results.goals, results.models
    means = results.means.dropna(subset=[goals.x.column, goals.y.column])
    originals = references.loc[references["role"] == "original"].set_index("split")[goals.x.column].dropna()
    rows = [_row(str(split), group, originals, goals) for split, group in means.groupby(STUDY[0])]
    columns = [
        "split",
        "methods",
        "reference",
        *(f"{name}_{side}" for name in ("volume", "settings") for side in SIDES),
    ]
    return pd.DataFrame([row for row in rows if row], columns=columns)


def _row(split: str, settings: pd.DataFrame, originals: pd.Series, goals: Goals) -> dict[Hashable, Any] | None:
    kept = settings.groupby("method")["rectifier.name"].transform(lambda names: set(SIDES) <= set(names))
    paired = settings.loc[kept.astype(bool)]
    if paired.empty or split not in originals.index:
        return None
    original = originals.to_dict()[split]
    row: dict[Hashable, Any] = {"split": split, "methods": paired["method"].nunique(), "reference": original}
    corner = goals.x.gain(pd.Series([original])).tolist()[0], 0.0
    for side in SIDES:
        group = paired.loc[paired["rectifier.name"] == side]
        points = zip(goals.x.gain(group[goals.x.column]), goals.y.gain(group[goals.y.column]), strict=True)
        row |= {f"volume_{side}": hypervolume(points, corner), f"settings_{side}": len(group)}
    return row
