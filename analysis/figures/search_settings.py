"""What each setting of a search does: every goal over every setting."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import STYLE, make_panels, marker
from analysis.load.goal_columns import Goals
from analysis.number_format import setting_text
from analysis.stats.importance import is_numeric, is_wide, varied_settings

MARK = 3.5
"""The size of a point."""


@mpl.rc_context(STYLE)
def draw(points: pd.DataFrame, goals: Goals, shares: pd.DataFrame) -> Figure:
    """Draw a study's points: one row for each goal, one column for each setting, the most important one first.

    `shares`: the study's rows of `importance.measure_importance`.
    """
    means: Any = shares.groupby("setting")["importance"].mean()
    ranked = sorted(varied_settings(points), key=lambda name: (-means.get(name, 0.0), name))
    figure, grid = make_panels(len(goals.compared), len(ranked), 1.9, 1.9, sharey="row")
    look = marker(points["method"].iloc[0], points["rectifier.name"].iloc[0]) | {"markersize": MARK}
    for panels, goal in zip(grid, goals.compared, strict=True):
        for axes, name in zip(panels, ranked, strict=True):
            order = pd.Series(pd.to_numeric(points[name], errors="coerce")).sort_values().index
            rows = points.loc[order].dropna(subset=[goal.metric])
            axes.plot(place_values(axes, rows[name]), rows[goal.metric], **look)
            axes.set_xlabel(name)
        panels[0].set_ylabel(goal.short)
    return figure


def place_values(axes: Axes, values: Any) -> Any:
    """Return what lies on the x axis: numbers on a linear or log scale, words and `none` as categories."""
    if not is_numeric(values):
        return [value if isinstance(value, str) else setting_text(value) for value in values]
    if is_wide(values.astype(float)):
        axes.set_xscale("log")
    else:
        axes.locator_params("x", nbins=3)
    return values.astype(float)
