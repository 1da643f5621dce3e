"""What a task vector's strength does: FQ and MU over stg (TRU) and strength (TV), and over the distance moved."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import FRAMED, LINES, STYLE, add_legend, make_panels, opaque
from analysis.labels import TASK_VECTORS, method_label, split_label
from analysis.load.goal_columns import TOFU

KNOBS = {"tru": "stg, in mean unit vectors", "tv": "strength, in task vectors"}
CHANGE = r"$\|\theta - \theta_\mathrm{org}\|\; /\; \|\theta_\mathrm{org}\|$, %"
DASHES = ["-", "--", "-.", ":"]
WIDE = 10.0
"""Strengths and changes this many times apart are on a logarithmic axis."""


@mpl.rc_context(STYLE)
def draw(points: pd.DataFrame) -> Figure:
    """Draw `strength_points`: FQ above MU for every split, over each method's strength and over the relative change."""
    strengths = points.loc[points["kind"] == "strength"]
    splits = sorted(strengths["split"].unique())
    several = strengths.groupby("method")["strength"].nunique() > 1  # a panel of one point shows nothing
    methods = [method for method in TASK_VECTORS if several.get(method)]
    knobs = [*methods, *["relative_change"] * bool(strengths["relative_change"].notna().any())]
    figure, grid = make_panels(2 * len(splits), len(knobs), 2.2, 1.6, sharex="col", sharey="row")
    rows = [(split, column) for split in splits for column in TOFU.columns]
    for panels, (split, column) in zip(grid, rows, strict=True):
        panels[0].set_ylabel(f"{split_label(split)}\n{column.head}")
        for axes, knob in zip(panels, knobs, strict=True):
            _draw_panel(axes, points.loc[points["split"] == split], knob, column.metric)
    for panels, knob in zip(grid.T, knobs, strict=True):
        panels[0].set_title(method_label(knob) if knob in methods else "both, by distance moved")
        panels[-1].set_xlabel(KNOBS.get(knob, CHANGE) + " (log axis)" * (panels[0].get_xscale() == "log"))
    add_legend(figure)
    return figure


def _draw_panel(axes: Axes, rows: pd.DataFrame, knob: str, metric: str) -> None:
    """Draw one metric over one knob: a method's strength, or the relative change of all methods."""
    for model in rows.loc[rows["kind"] == "reference"].dropna(subset=[metric]).to_dict("records"):
        axes.axhline(model[metric], **LINES[model["method"]], zorder=1)
    strengths = rows.loc[(rows["kind"] == "strength") & rows["method"].isin([knob] if knob in KNOBS else KNOBS)]
    strengths = strengths.dropna(subset=[metric])
    values = strengths["strength"] if knob in KNOBS else 100 * strengths["relative_change"]
    if 0 < WIDE * values.min() <= values.max():
        axes.set_xscale("log")
    for method, curves in strengths.groupby("method"):
        for place, (text, curve) in enumerate(curves.groupby("settings")):
            x, name = values[curve.index], f"{method_label(str(method))}{f' ({text})' if text else ''}"
            look: dict[str, Any] = opaque(str(method), "none")  # as in the trade-off: without GRU
            line = look | {"linestyle": DASHES[place % len(DASHES)], "markersize": 4.5}
            axes.errorbar(x, curve[metric], curve[f"{metric}_sd"].fillna(0), elinewidth=0.7, **line, label=name)
            framed: dict[str, Any] = look | FRAMED | {"label": "chosen strength"}
            axes.plot(x[curve["chosen"]], curve.loc[curve["chosen"], metric], **framed, zorder=5)
