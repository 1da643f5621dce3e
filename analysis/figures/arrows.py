"""The trade-off without its trials: an arrow from each method to itself with GRU, of runs, of the paper, or of both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import GREY, SIGN, SIGNIFICANT, STYLE, abreast, colour, dashes, method_signs, rectified
from analysis.figures.tradeoff import QUALITY, bold, heights, limits, star
from analysis.load import goals
from analysis.load.goals import Goals
from analysis.tables.main import WITH
from analysis.tables.overlay import MODELS, in_order, places, sourced, title

KEY = ["source", "benchmark", "backbone", "split", "method", "rectifier"]
FAINT = {"alpha": 0.45, "linewidth": 0.8}
"""Arrows of the paper where there are those of runs too."""


def points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row a panel, method and rectifier that the rule chose: removal and retention, on TOFU FQ and MU.

    Removal by several goals is their mean, in the column `removal`. The reference models are methods of these names.
    """
    rows = sourced(frame)
    what = goals.goals(rows["benchmark"].iloc[0])
    rows = rows.loc[rows["chosen"] & rows["target"].isna()]
    wide = rows.pivot_table(index=KEY, columns="metric", values="value", sort=False).reset_index()
    if len(what.removal) > 1:
        wide["removal"] = wide.reindex(columns=[goal.metric for goal in what.removal]).mean(axis=1, skipna=False)
    both = [what.x.column, what.y.column]
    found = wide.reindex(columns=[*KEY, *both]).dropna(subset=both)
    order = {"place": [places(found).index(pair) for pair in zip(found["backbone"], found["split"], strict=True)]}
    order["who"] = [*found["method"].map([*MODELS, *in_order(set(found["method"]) - set(MODELS))].index)]
    order["with"] = [*found["rectifier"].map(["none", *WITH].index)]
    found = found.rename_axis(columns=None).assign(**order).sort_values(["source", *order], ignore_index=True)
    return found.drop(columns=list(order))


def draw(drawn: pd.DataFrame) -> Figure:
    """Draw `points`, a panel a backbone and split; where both sources are drawn the paper's arrows are faint."""
    what = goals.goals(drawn["benchmark"].iloc[0])
    panels = places(drawn)
    across = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // across)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(4.8, 3.4 * across), 2.5 * rows + 1.0), layout="constrained")
        grid = figure.subplots(rows, across, squeeze=False).flatten()
        for axes, (backbone, split) in zip(grid, panels, strict=False):
            here = drawn.loc[(drawn["backbone"] == backbone) & (drawn["split"] == split)]
            _panel(axes, here, what)
            axes.set_title(title(backbone, split))
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        for place, axes in enumerate(grid[: len(panels)]):
            axes.set_xlabel(f"{what.x.name}, {what.x.better}" if place + across >= len(panels) else "")
            axes.set_ylabel(f"{what.y.name}\n({what.y.better})" if place % across == 0 else "")
        methods = in_order(set(drawn["method"]) - set(MODELS))
        wide = abreast(len(methods), 7 if figure.get_figwidth() > 6 else 4)
        figure.legend(handles=method_signs(methods), loc="outside upper center", ncols=wide, handlelength=SIGN)
        figure.legend(handles=list(_signs(drawn, what)), loc="outside lower center", ncols=3)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, what: Goals) -> None:
    x, y = what.x.column, what.y.column
    axes.set_xlim(limits(rows[x].tolist(), what.x))
    axes.set_ylim(heights(rows[y].tolist()))
    if x == QUALITY:
        axes.axvline(SIGNIFICANT, color=GREY, linestyle=":", linewidth=0.8, zorder=1)
    faint = "runs" in set(rows["source"])
    for source in ("paper", "runs"):
        here = rows.loc[rows["source"] == source]
        below = source == "paper" and faint
        for row in here.to_dict("records"):
            if row["method"] in MODELS:
                axes.plot(row[x], row[y], **_star(row["method"], below), zorder=2.5)
            else:
                axes.plot(row[x], row[y], **_sign(row["method"], row["rectifier"], below), zorder=3 if below else 6)
        for method, pair in here.groupby("method"):
            ends = {row["rectifier"]: (row[x], row[y]) for row in pair.to_dict("records")}
            if {"none", "gru"} <= set(ends) and ends["none"] != ends["gru"]:
                style = {"arrowstyle": "-|>", "color": colour(str(method)), "shrinkA": 3.5, "shrinkB": 3.5}
                style |= {"linestyle": dashes(str(method)), "linewidth": 1.2} | (FAINT if below else {})
                axes.annotate("", ends["gru"], ends["none"], arrowprops=style, zorder=2.8 if below else 5)


def _sign(method: str, rectifier: str, below: bool) -> dict[str, Any]:
    size = {"markersize": 4.5, "markeredgewidth": 0.9, "alpha": 0.5} if below else {"markersize": 6}
    return bold(method, rectifier) | size


def _star(role: str, below: bool) -> dict[str, Any]:
    return star(role, 8) | {"alpha": 0.45} if below else star(role)


def _signs(drawn: pd.DataFrame, what: Goals) -> Iterable[Line2D]:
    """Yield a legend entry for every kind of sign that is drawn."""
    grey: dict[str, Any] = {"color": GREY, "marker": "o", "linestyle": "none", "ms": 6, "mew": 1.5}
    models = drawn["method"].isin(MODELS)
    for rectifier, label in {"none": "method alone", **WITH}.items():
        if (drawn.loc[~models, "rectifier"] == rectifier).any():
            yield Line2D([], [], **grey, fillstyle=rectified(rectifier)[0], label=label)
    for role in MODELS:
        if role in set(drawn["method"]):
            yield Line2D([], [], **star(role, 9), label=f"{role} model")
    if set(drawn["source"]) == {"runs", "paper"}:
        small: dict[str, Any] = grey | {"ms": 4.5, "mew": 0.9, "alpha": 0.5}
        yield Line2D([], [], **small, label="small and faint: the paper")
    if what.x.column == QUALITY:
        yield Line2D([], [], color=GREY, linestyle=":", linewidth=0.8, label="p = 0.05")
