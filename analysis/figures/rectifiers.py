"""What each rectifier changes against none: a forest plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import GREY, STYLE, make_panels
from analysis.labels import method_label, order_methods, order_rectifiers, rectifier_name, split_label
from analysis.load.goal_columns import BETTER
from analysis.stats.rectifier_comparison import EQUAL, OWN, Comparison
from trainables.benchmarks import Goal

COLOURS = {1.0: "#0072B2", -1.0: "#D55E00"}
"""Of better and worse; grey: neither, or not tested."""
WORDS = {1.0: "better", -1.0: "worse", 0.0: "not significant"}
LINE = 0.155
"""Height of a rectifier's line in inches."""


def difference_points(comparison: Comparison) -> pd.DataFrame:
    """Return `Comparison.differences` as far as there is something to draw, `gains` as a text."""
    rows = comparison.differences
    rows = rows.loc[rows["n"] > 0]
    return rows.assign(gains=[" ".join(f"{gain:.4g}" for gain in gains) for gains in rows["gains"]])


@mpl.rc_context(STYLE)
def draw_differences(points: pd.DataFrame, goals: Sequence[Goal]) -> Figure:
    """Draw one split's `difference_points`: objectives in rows, goals in columns, a line for each rectifier.

    Full marks: each at its own best settings, hollow: at those of none. Better is to the right. Where no interval is
    known the line is from the lowest to the highest seed.
    """
    methods, names = order_methods(points["method"]), order_rectifiers(points["rectifier"])
    shown = [goal for goal in goals if goal.metric in set(points["metric"])]
    height = 0.55 + LINE * len(names) * (1.4 if len(set(points["basis"])) > 1 else 1)
    figure, grid = make_panels(len(methods), len(shown), 1.9, height, sharex="col", sharey=True)
    figure.suptitle(f"{split_label(str(points['split'].iloc[0]))}: change against no rectifier", fontsize=8)
    for line, method in zip(grid, methods, strict=True):
        for axes, goal in zip(line, shown, strict=True):
            axes.set_title(f"{method_label(method)}\n{goal.short}", loc="left", fontweight="bold", fontsize=7)
            axes.grid(axis="y", color="#eeeeee", linewidth=0.6)
            axes.axvline(0, color="black", linewidth=0.7, zorder=1)
            here = points.loc[(points["method"] == method) & (points["metric"] == goal.metric)]
            for row in here.to_dict("records"):
                _draw_change(axes, row, names.index(row["rectifier"]))
    for axes, goal in zip(grid[-1], shown, strict=True):
        axes.locator_params("x", nbins=3)
        axes.tick_params("x", labelsize=6.5)
        axes.set_xlabel(BETTER[goal.best].partition(" is")[0] + " is better →")
        if goal.best == "lowest":
            axes.invert_xaxis()
    grid[0, 0].set_yticks(range(len(names)), list(map(rectifier_name, names)))
    grid[0, 0].set_ylim(len(names) - 0.5, -0.5)
    _add_key(figure, points)
    return figure


def _draw_change(axes: Axes, row: dict[Any, Any], place: int) -> None:
    shift = {OWN: -0.17, EQUAL: 0.17}[row["basis"]]
    colour = COLOURS.get(row["sign"], GREY)
    seeds = [float(gain) for gain in row["gains"].split()]
    ends = (min(seeds), max(seeds)) if pd.isna(row["low"]) else (row["low"], row["high"])
    axes.plot(ends, [place + shift] * 2, color=colour, linewidth=1.1, zorder=2, solid_capstyle="butt")
    face = colour if row["basis"] == OWN else "white"
    mark: dict[str, Any] = {"marker": "o", "markersize": 3.6, "color": colour, "markerfacecolor": face}
    axes.plot(row["difference"], place + shift, **mark, zorder=3)


def _add_key(figure: Figure, points: pd.DataFrame) -> None:
    """Put a legend below that says what colours and marks mean, as far as there are such."""
    signs = set(points["sign"].dropna())
    entries = [
        Line2D([], [], color=COLOURS.get(sign, GREY), marker="o", markersize=3.6, label=word)
        for sign, word in WORDS.items()
        if sign in signs
    ]
    if EQUAL in set(points["basis"]):
        mark: dict[str, Any] = {"color": "black", "marker": "o", "markersize": 3.6, "linestyle": "none"}
        entries.append(Line2D([], [], **mark, label="each at its own best"))
        entries.append(Line2D([], [], **mark, markerfacecolor="white", label="at the settings of none"))
    if entries:
        figure.legend(handles=entries, loc="outside lower center", ncols=min(len(entries), 5))
