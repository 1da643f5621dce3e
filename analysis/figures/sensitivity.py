"""What gamma and tau do: each goal over one of them, a line a method, from runs, from the paper, or both."""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from analysis.figures.style import FRAMED, GREY, SIGN, STYLE, abreast, dashes, marker
from analysis.load.goals import ARROWS
from analysis.tables.main import method_label
from analysis.tables.overlay import compared, in_order, numbers, places, sourced, title

COLUMNS = ["source", "benchmark", "backbone", "split", "metric", "method", "knob", "setting", "value", "sd", "n"]
COLUMNS += ["chosen"]
OTHER = {"gamma": "tau", "tau": "gamma"}
SYMBOLS = {"gamma": r"$\gamma$, weight of the new retain gradient", "tau": r"$\tau$, clipping norm (log axis)"}
NONE = "none"
APART, GAP = 0.095, 0.14
"""Tick labels are at least this share of the settings' range apart; `none` is that far from the last."""
CURVE = ["source", "backbone", "split", "method"]


def points(frame: pd.DataFrame, knob: str) -> pd.DataFrame:
    """Return a row a goal, method and value of `knob` (gamma, tau): the curves of methods that have two or more.

    Of runs the other of the two is that of the chosen setting; `frame` holds one row a pair (`overlay.near_chosen`).
    The paper's tables vary one of them alone.
    """
    rows = sourced(frame)
    rows = rows.loc[(rows["rectifier"] == "gru") & rows["target"].isna() & (rows[knob] != "") & rows["value"].notna()]
    metrics = [column.metric for column in compared(frame)]
    rows = rows.loc[rows["metric"].isin(metrics)]
    chosen = rows.loc[rows["chosen"], [*CURVE, OTHER[knob]]].drop_duplicates(CURVE)
    rows = rows.merge(chosen, on=[*CURVE, OTHER[knob]])
    several = rows.groupby(CURVE)[knob].transform("nunique") > 1
    rows = rows.loc[several].rename(columns={knob: "setting"}).assign(knob=knob)
    order = {
        "at": pd.Series(numbers(rows["setting"].tolist()), index=rows.index, dtype=float),
        "what": rows["metric"].map(metrics.index),
        "who": rows["method"].map(in_order(rows["method"]).index),
    }
    rows = rows.assign(**order).sort_values(["source", "backbone", "split", "what", "who", "at"], kind="stable")
    return rows.reindex(columns=COLUMNS).reset_index(drop=True)


def draw(drawn: pd.DataFrame) -> Figure:
    """Draw `points`: a row a goal, a column a backbone and split; `none` is a tick of its own at the right."""
    metrics, panels, knob = compared(drawn), places(drawn), drawn["knob"].iloc[0]
    with mpl.rc_context(STYLE):
        size = (min(7.4, 0.6 + 3.4 * len(panels)), 1.75 * len(metrics) + 0.95)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(metrics), len(panels), sharex="col", sharey="row", squeeze=False)
        for column, (backbone, split) in enumerate(panels):
            here = drawn.loc[(drawn["backbone"] == backbone) & (drawn["split"] == split)]
            place = _scale(list(grid[:, column]), here["setting"].unique().tolist(), knob)
            for row, metric in enumerate(metrics):
                _panel(grid[row, column], here.loc[here["metric"] == metric.metric], place)
                grid[row, 0].set_ylabel(f"{metric.label}{ARROWS[metric.best]}")
            grid[0, column].set_title(title(backbone, split))
            grid[-1, column].set_xlabel(SYMBOLS[knob])
        signs = _signs(drawn)
        wide = abreast(len(signs), 3 if size[0] < 5 else 6)
        figure.legend(handles=signs, loc="outside lower center", ncols=wide, handlelength=SIGN)
    return figure


def _scale(panels: list[Axes], settings: list[str], knob: str) -> dict[str, float]:
    """Set ticks at the settings, their labels without overlap, and return where each is; `none` is last, and apart."""
    values = dict(zip(settings, numbers(settings), strict=True))
    place = {text: _at(value, knob) for text, value in values.items() if text != NONE}
    low, high = min(place.values(), default=0.0), max(place.values(), default=0.0)
    width = (high - low) or 1.0
    order = sorted(place, key=lambda text: (place[text] not in (low, high), place[text]))  # the ends first
    if NONE in values:
        for axes in panels:
            axes.axvline(high + GAP / 2 * width, color=GREY, linestyle=":", linewidth=0.6)
        place[NONE] = high + GAP * width
        order = [NONE, *order]
    kept: list[str] = []
    for text in order:
        if all(abs(place[text] - place[other]) >= APART * width for other in kept):
            kept.append(text)
    labels = [text if text == NONE else f"{values[text]:g}" for text in kept]
    axes = panels[-1]  # they share it
    axes.set_xticks([place[text] for text in kept], labels, fontsize=7)
    axes.xaxis.set_minor_locator(FixedLocator([place[text] for text in place]))
    axes.set_xlim(low - 0.05 * width, max(place.values()) + 0.05 * width)
    return place


def _at(value: float, knob: str) -> float:
    return math.log10(value) if knob == "tau" else value


def _panel(axes: Axes, rows: pd.DataFrame, place: dict[str, float]) -> None:
    """Draw one goal's curves; a point without clipping or average (`none`) is joined to no other."""
    faint = "runs" in set(rows["source"])
    for _, curve in rows.groupby(["source", "method"]):
        source, method = curve.iloc[0][["source", "method"]]
        style = _style(str(method), str(source), faint)
        x = curve["setting"].map(place.get)
        line = curve["setting"] != NONE
        axes.plot(x[line], curve.loc[line, "value"], **style)
        alone: dict[str, Any] = style | {"linestyle": "none"}
        axes.plot(x[~line], curve.loc[~line, "value"], **alone)
        if source == "runs":
            bars: dict[str, Any] = style | {"linestyle": "none", "marker": "none"}
            axes.errorbar(x, curve["value"], curve["sd"].fillna(0), elinewidth=0.7, **bars)
            best = curve["chosen"]
            axes.plot(x[best], curve.loc[best, "value"], **marker(str(method), "gru"), **FRAMED, zorder=5)


def _style(method: str, source: str, faint: bool) -> dict[str, Any]:
    """Return keywords for a curve: of the paper small and faint where there are those of runs too."""
    style: dict[str, Any] = marker(method, "gru") | {"markersize": 5, "linestyle": dashes(method)}
    style |= {"markeredgecolor": "white", "markeredgewidth": 0.5}  # where two methods meet both are seen
    return style | ({"alpha": 0.45, "linewidth": 0.7, "markersize": 3} if faint and source != "runs" else {})


def _signs(drawn: pd.DataFrame) -> list[Line2D]:
    """Return a legend entry for every kind of line that is drawn."""
    sources = set(drawn["source"])
    handles = [
        Line2D([], [], **_style(method, "runs", faint=False), label=method_label(method))
        for method in in_order(drawn["method"])
    ]
    if "runs" in sources:
        sign: dict[str, Any] = {"color": "white", "marker": "o", "linestyle": "none"} | FRAMED
        handles.append(Line2D([], [], **sign, label="chosen setting"))
    if sources == {"runs", "paper"}:
        style: dict[str, Any] = _style("ga", "paper", faint=True) | {"color": GREY, "marker": "o"}
        handles.append(Line2D([], [], **style, label="small and faint: the paper"))
    return handles
