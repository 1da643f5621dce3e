"""What each setting of a search does: every goal over every setting, and over the two that matter most together."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation

from analysis.figures.style import STYLE, marker
from analysis.load.goal_columns import Goals
from analysis.number_format import setting_text
from analysis.stats.importance import is_numeric, is_wide, varied_settings

MARK = 3.5
"""The size of a point."""
LEAST_CONTOUR = 6
"""Points below which no areas are drawn between them."""


@mpl.rc_context(STYLE)
def draw(points: pd.DataFrame, goals: Goals, ranked: list[str]) -> Figure:
    """Draw a study's points: one row for each goal, one column for each setting of `ranked`, the first most.

    Where the first two are numbers, a last column has both as axes and the goal as colour.
    """
    both = len(ranked) > 1 and all(is_numeric(points[name]) for name in ranked[:2])
    columns = len(ranked) + both
    figure = Figure(figsize=(1.2 + 1.9 * columns, 0.6 + 1.9 * len(goals.compared)), layout="constrained")
    grid = figure.subplots(len(goals.compared), columns, squeeze=False)
    look = marker(points["method"].iloc[0], points["rectifier.name"].iloc[0]) | {"markersize": MARK}
    for panels, goal in zip(grid, goals.compared, strict=True):
        rows = points.dropna(subset=[goal.metric])
        for axes, name in zip(panels, ranked, strict=False):
            axes.plot(place_values(axes, "x", rows[name]), rows[goal.metric], **look)
            axes.set_xlabel(name)
        panels[0].set_ylabel(goal.short)
        if both and len(rows):
            _draw_both(figure, panels[-1], rows, ranked[:2], goal.metric)
    return figure


def rank_settings(points: pd.DataFrame, shares: pd.DataFrame) -> list[str]:
    """Return a study's settings, the one of the highest importance over all goals first."""
    means: Any = shares.groupby("setting")["importance"].mean()
    return sorted(varied_settings(points), key=lambda name: (-means.get(name, 0.0), name))


def place_values(axes: Axes, side: str, values: Any) -> Any:
    """Return where values lie on an axis: numbers on a linear or log scale, words and `none` evenly spaced."""
    if is_numeric(values):
        if is_wide(values.astype(float)):
            getattr(axes, f"set_{side}scale")("log")
        else:
            axes.locator_params(axis=side, nbins=3)
        return values.astype(float)
    numbers: Any = pd.to_numeric(values, errors="coerce")
    texts = [value if isinstance(value, str) else setting_text(value) for value in values]
    order = list(dict.fromkeys(text for _, text in sorted(zip(numbers.fillna(np.inf), texts, strict=True))))
    getattr(axes, f"set_{side}ticks")(range(len(order)), order)
    return [order.index(text) for text in texts]


def _draw_both(figure: Figure, axes: Axes, rows: pd.DataFrame, names: list[str], metric: str) -> None:
    """Draw a goal as colour over two settings; between enough points the areas of a linear interpolation."""
    x, y = (np.asarray(place_values(axes, side, rows[name])) for side, name in zip("xy", names, strict=True))
    values: Any = rows[metric].to_numpy(dtype=float)
    if len(set(zip(x, y, strict=True))) >= LEAST_CONTOUR and len(set(x)) > 1 and len(set(y)) > 1:
        scaled = (
            np.log(each) if is_wide(rows[name].astype(float)) else each
            for each, name in zip((x, y), names, strict=True)
        )
        mesh = Triangulation(*scaled)
        axes.tricontourf(x, y, mesh.triangles, values, cmap="viridis", alpha=0.6)
    drawn = axes.scatter(x, y, c=values, cmap="viridis", s=MARK**2, edgecolors="black", linewidths=0.4, clip_on=False)
    figure.colorbar(drawn, ax=axes, shrink=0.9)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
