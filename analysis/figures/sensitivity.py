"""What gamma and tau do: each goal over one of them, one line for each method, from runs, from the paper, or both."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures import panel_data
from analysis.figures.style import (
    FRAMED,
    GREY,
    LEGEND_LINE_LENGTH,
    STYLE,
    dashes,
    draw_error_bars,
    even_columns,
    legend_entry,
    marker,
)
from analysis.labels import method_label
from analysis.number_format import plain_setting

COLUMNS = ["source", "benchmark", "backbone", "split", "metric", "method", "knob", "setting", "value", "sd", "n"]
COLUMNS += ["chosen"]
OTHER = {"gamma": "tau", "tau": "gamma"}
SYMBOLS = {"gamma": r"$\gamma$, weight of the new retain gradient", "tau": r"$\tau$, clipping norm"}
CURVE = ["source", "backbone", "split", "method"]


def curve_points(frame: pd.DataFrame, knob: str) -> pd.DataFrame:
    """Return one row per goal, method and value of `knob` (gamma or tau), of the methods with two values or more.

    Of runs, the other setting is held at its chosen value; `frame` has one row per pair
    (`panel_data.vary_only_gamma_tau`). The paper's tables vary only one of the two.
    """
    rows = panel_data.add_source(frame)
    rows = rows.loc[(rows["rectifier"] == "gru") & rows["target"].isna() & (rows[knob] != "") & rows["value"].notna()]
    metrics = [column.metric for column in panel_data.compared_columns(frame)]
    rows = rows.loc[rows["metric"].isin(metrics)]
    chosen = rows.loc[rows["chosen"], [*CURVE, OTHER[knob]]].drop_duplicates(CURVE)
    rows = rows.merge(chosen, on=[*CURVE, OTHER[knob]])
    several = rows.groupby(CURVE)[knob].transform("nunique") > 1
    rows = rows.loc[several].rename(columns={knob: "setting"}).assign(knob=knob)
    rows["at"] = pd.to_numeric(rows["setting"], errors="coerce")
    return panel_data.sort_points(rows, metrics, ["at"]).reindex(columns=COLUMNS)


@mpl.rc_context(STYLE)
def draw(points: pd.DataFrame) -> Figure:
    """Draw `curve_points`: one row for each goal, one column for each backbone and split, settings evenly spaced."""
    points = points.assign(setting=points["setting"].map(plain_setting))
    metrics, places, knob = panel_data.compared_columns(points), panel_data.list_places(points), points["knob"].iloc[0]
    size = (min(7.4, 0.6 + 3.4 * len(places)), 1.75 * len(metrics) + 0.95)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(metrics), len(places), sharex="col", sharey="row", squeeze=False)
    for panels, place in zip(grid.T, places, strict=True):
        here = panel_data.at_place(points, place)
        ticks = {text: place for place, text in enumerate(panel_data.order_settings(here["setting"]))}
        panels[-1].set_xticks(range(len(ticks)), list(ticks), fontsize=7, rotation=90 if len(ticks) > 9 else 0)
        for axes, metric in zip(panels, metrics, strict=True):
            _draw_panel(axes, here.loc[here["metric"] == metric.metric], ticks)
        panels[0].set_title(panel_data.place_title(place))
        panels[-1].set_xlabel(SYMBOLS[knob])
    for axes, metric in zip(grid[:, 0], metrics, strict=True):
        axes.set_ylabel(metric.head)
    signs = _list_legend_entries(points)
    columns = even_columns(len(signs), 3 if size[0] < 5 else 6)
    figure.legend(handles=signs, loc="outside lower center", ncols=columns, handlelength=LEGEND_LINE_LENGTH)
    return figure


def _draw_panel(axes: Axes, rows: pd.DataFrame, ticks: dict[str, int]) -> None:
    """Draw one goal's curves; a point without clipping or average (`none`) is joined to no other."""
    for _, curve in rows.groupby(["source", "method"]):
        source, method = curve.iloc[0][["source", "method"]]
        look = _curve_look(str(method), source == "paper" and "runs" in set(rows["source"]))
        x, joined = curve["setting"].map(ticks.get), curve["setting"] != "none"
        axes.plot(x[joined], curve.loc[joined, "value"], **look)
        alone: dict[str, Any] = look | {"linestyle": "none"}
        axes.plot(x[~joined], curve.loc[~joined, "value"], **alone)
        if source == "runs":
            draw_error_bars(axes, x, curve, "value", look)
            best = curve["chosen"]
            axes.plot(x[best], curve.loc[best, "value"], **marker(str(method), "gru"), **FRAMED, zorder=5)


def _curve_look(method: str, faint: bool) -> dict[str, Any]:
    """Return keywords for a curve: of the paper small and faint where there are those of runs too."""
    look = marker(method, "gru") | {"markersize": 5, "linestyle": dashes(method)}
    look |= {"markeredgecolor": "white", "markeredgewidth": 0.5}  # where two methods meet both are seen
    return look | ({"alpha": 0.45, "linewidth": 0.7, "markersize": 3} if faint else {})


def _list_legend_entries(points: pd.DataFrame) -> list[Line2D]:
    """Return a legend entry for every kind of line that is drawn."""
    handles = [
        legend_entry(method_label(name), **_curve_look(name, faint=False)) for name in panel_data.list_methods(points)
    ]
    if "runs" in set(points["source"]):
        handles.append(legend_entry("chosen setting", color="white", marker="o", linestyle="none", **FRAMED))
    if panel_data.has_both_sources(points):
        look = _curve_look("ga", faint=True) | {"color": GREY, "marker": "o"}
        handles.append(legend_entry("small and faint: the paper", **look))
    return handles
