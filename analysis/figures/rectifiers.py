"""What each rectifier changes against none: a forest plot."""

from collections.abc import Sequence

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import GAIN_COLOUR, GREY, LOSS_COLOUR, RC_PARAMS, make_panels
from analysis.labels import format_forget_split, format_rectifier_name, method_label, order_methods, order_rectifiers
from analysis.load.goal_columns import BETTER_DIRECTION_WORDS
from analysis.stats.rectifier_comparison import RectifierComparison
from trainables.benchmarks import Goal

SIGN_COLOURS = {1.0: GAIN_COLOUR, -1.0: LOSS_COLOUR}
"""Of better and worse; grey: neither, or not tested."""
SIGN_WORDS = {1.0: "better", -1.0: "worse", 0.0: "not significant"}
INCHES_PER_RECTIFIER_ROW = 0.155


def select_drawn_differences(comparison: RectifierComparison) -> pd.DataFrame:
    """Return `RectifierComparison.differences` as far as there is something to draw, `gains` as a text."""
    rows = comparison.differences
    rows = rows.loc[rows["n"] > 0]
    return rows.assign(gains=[" ".join(f"{gain:.4g}" for gain in gains) for gains in rows["gains"]])


@mpl.rc_context(RC_PARAMS)
def draw_differences(points: pd.DataFrame, goals: Sequence[Goal]) -> Figure:
    """Draw one split's `select_drawn_differences`: objectives in rows, goals in columns, better to the right."""
    methods, names = order_methods(points["method"]), order_rectifiers(points["rectifier"])
    shown = [goal for goal in goals if goal.metric in set(points["metric"])]
    size = len(methods), len(shown), 1.9, 0.55 + INCHES_PER_RECTIFIER_ROW * len(names)
    figure, grid = make_panels(*size, sharex="col", sharey=True)
    figure.suptitle(f"{format_forget_split(str(points['split'].iloc[0]))}: change against no rectifier", fontsize=8)
    for line, method in zip(grid, methods, strict=True):
        for axes, goal in zip(line, shown, strict=True):
            axes.set_title(f"{method_label(method)}\n{goal.short}", loc="left", fontweight="bold", fontsize=7)
            axes.grid(axis="y", color="#eeeeee", linewidth=0.6)
            axes.axvline(0, color="black", linewidth=0.7, zorder=1)
            here = points.loc[(points["method"] == method) & (points["metric"] == goal.metric)]
            for row in here.to_dict("records"):
                colour, place = SIGN_COLOURS.get(row["sign"], GREY), names.index(row["rectifier"])
                seeds = [float(gain) for gain in row["gains"].split()]
                # where no interval is known the line is from the lowest to the highest seed
                ends = (min(seeds), max(seeds)) if pd.isna(row["low"]) else (row["low"], row["high"])
                axes.plot(ends, [place] * 2, color=colour, linewidth=1.1, zorder=2, solid_capstyle="butt")
                axes.plot(row["difference"], place, marker="o", markersize=3.6, color=colour, zorder=3)
    for axes, goal in zip(grid[-1], shown, strict=True):
        axes.locator_params("x", nbins=3)
        axes.tick_params("x", labelsize=6.5)
        axes.set_xlabel(BETTER_DIRECTION_WORDS[goal.best].partition(" is")[0] + " is better →")
        if goal.best == "lowest":
            axes.invert_xaxis()
    grid[0, 0].set_yticks(range(len(names)), list(map(format_rectifier_name, names)))
    grid[0, 0].set_ylim(len(names) - 0.5, -0.5)
    signs = set(points["sign"].dropna())
    entries = [
        Line2D([], [], color=SIGN_COLOURS.get(sign, GREY), marker="o", markersize=3.6, label=word)
        for sign, word in SIGN_WORDS.items()
        if sign in signs
    ]
    if entries:
        figure.legend(handles=entries, loc="outside lower center", ncols=len(entries))
    return figure
