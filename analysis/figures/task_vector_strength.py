"""What a task vector's strength does: FQ and MU over stg (TRU) and strength (TV), and over the distance moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import FRAMED, LINES, STYLE, legend_entry, opaque
from analysis.labels import TASK_VECTORS, method_label, split_label
from analysis.load.goal_columns import TOFU_METRICS

AXES = {"forget_quality": "FQ, ln p\n(better →)", "model_utility": "MU, 0 to 1\n(better →)"}
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
    figure = Figure(figsize=(1.0 + 2.13 * len(knobs), 3.2 * len(splits) + 0.6), layout="constrained")
    for part, split in zip(figure.subfigures(len(splits), 1, squeeze=False).flatten(), splits, strict=True):
        part.suptitle(split_label(split), fontsize=8, fontweight="bold")
        grid = part.subplots(2, len(knobs), sharex="col", sharey="row", squeeze=False)
        rows = points.loc[points["split"] == split]
        for panels, knob in zip(grid.T, knobs, strict=True):
            for axes, metric in zip(panels, TOFU_METRICS, strict=True):
                _draw_panel(axes, rows, knob, metric)
            panels[0].set_title(method_label(knob) if knob in methods else "both, by distance moved")
            panels[1].set_xlabel(KNOBS.get(knob, CHANGE) + " (log axis)" * (panels[1].get_xscale() == "log"))
        for axes, metric in zip(grid[:, 0], TOFU_METRICS, strict=True):
            axes.set_ylabel(AXES[metric])
    figure.legend(handles=list(_list_legend_entries(points)), loc="outside lower center", ncols=5, handlelength=3)
    return figure


def _draw_panel(axes: Axes, rows: pd.DataFrame, knob: str, metric: str) -> None:
    """Draw one metric over one knob: a method's strength, or the relative change of all methods."""
    for model in rows.loc[rows["kind"] == "reference"].dropna(subset=[metric]).to_dict("records"):
        axes.axhline(model[metric], **LINES[model["method"]], zorder=1)
    strengths = rows.loc[rows["kind"] == "strength"].dropna(subset=[metric])
    if knob in KNOBS:
        strengths = strengths.loc[strengths["method"] == knob]
    values = strengths["strength"] if knob in KNOBS else 100 * strengths["relative_change"]
    if 0 < WIDE * values.min() <= values.max():
        axes.set_xscale("log")
    for (method, text), curve in strengths.groupby(["method", "settings"]):
        x = values[curve.index]
        look = opaque(str(method), "none")  # as in the trade-off: without GRU
        line = look | {"linestyle": _dashes(rows, str(method), str(text)), "markersize": 4.5}
        axes.errorbar(x, curve[metric], curve[f"{metric}_sd"].fillna(0), elinewidth=0.7, **line)
        axes.plot(x[curve["chosen"]], curve.loc[curve["chosen"], metric], **look, **FRAMED, zorder=5)


def _dashes(rows: pd.DataFrame, method: str, settings: str) -> Any:
    """Return the line style of one of a method's curves, in the order of their settings."""
    texts = sorted(rows.loc[(rows["kind"] == "strength") & (rows["method"] == method), "settings"].unique())
    return DASHES[texts.index(settings) % len(DASHES)]


def _list_legend_entries(points: pd.DataFrame) -> Iterator[Line2D]:
    """Yield a legend entry for every curve and line that is drawn."""
    curves = points.loc[points["kind"] == "strength", ["method", "settings"]].drop_duplicates()
    for method, settings in curves.sort_values(["method", "settings"]).to_numpy():
        style = opaque(method, "none") | {"linestyle": _dashes(points, method, settings)}
        yield legend_entry(f"{method_label(method)}{f' ({settings})' if settings else ''}", **style)
    yield legend_entry("chosen strength", color="white", marker="o", linestyle="none", **FRAMED)
    for role in sorted(set(points.loc[points["kind"] == "reference", "method"])):
        yield legend_entry(f"{role} model", **LINES[role])
