"""UWC over its targets: FQ where a method is mixed until it keeps a share of the original's MU, alone and w/ GRU."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from analysis.figures.style import GREY, LINES, STYLE, opaque, rectified
from analysis.tables.main import WITH, method_label
from analysis.tables.overlay import in_order, places, sourced, title

COLUMNS = ["source", "benchmark", "backbone", "split", "method", "rectifier", "target", "forget_quality", "sd", "n"]
KEY = COLUMNS[:6]


def points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row a method, rectifier and target of the chosen settings, and the original model's without a target."""
    rows = sourced(frame)
    calibrated = rows["target"].notna() & rows["chosen"]
    models = (rows["method"] == "original") & rows["split"].isin(rows.loc[calibrated, "split"])
    rows = rows.loc[(calibrated | models) & (rows["metric"] == "forget_quality") & rows["value"].notna()]
    rows = rows.rename(columns={"value": "forget_quality"}).drop_duplicates([*KEY, "target"])
    order = rows["method"].map(["original", *in_order(set(rows["method"]) - {"original"})].index)
    by = ["source", "backbone", "split", "who", "rectifier", "target"]
    return rows.assign(who=order).sort_values(by, ignore_index=True).reindex(columns=COLUMNS)


def draw(drawn: pd.DataFrame) -> Figure:
    """Draw `points`: a row of panels a method, a panel a backbone and split; alone dashed and hollow, w/ GRU full."""
    panels, methods = places(drawn), in_order(set(drawn["method"]) - {"original"})
    with mpl.rc_context(STYLE):
        size = (min(7.4, max(4.0, 0.6 + 2.8 * len(panels))), 1.7 * len(methods) + 0.95)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(methods), len(panels), sharex=True, sharey="col", squeeze=False)
        for column, (backbone, split) in enumerate(panels):
            here = drawn.loc[(drawn["backbone"] == backbone) & (drawn["split"] == split)]
            for row, method in enumerate(methods):
                _panel(grid[row, column], here.loc[here["method"].isin([method, "original"])])
                grid[row, column].set_title(f"{method_label(method)}: {title(backbone, split)}")
            grid[-1, column].set_xlabel("share of the original's MU that is kept")
        for axes in grid[:, 0]:
            axes.set_ylabel("FQ ↑")
        grid[0, 0].set_xticks(sorted(drawn["target"].dropna().unique()))
        grid[0, 0].xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        figure.legend(handles=_signs(drawn), loc="outside lower center", ncols=2 if size[0] < 5 else 4)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame) -> None:
    faint = "runs" in set(rows["source"])
    for _, curve in rows.groupby(["source", "method", "rectifier"]):
        source, method, rectifier = curve.iloc[0][["source", "method", "rectifier"]]
        below = faint and source == "paper"
        if method == "original":
            if source == "runs" or not faint:
                axes.axhline(curve["forget_quality"].iloc[0], **LINES["original"], zorder=1)
            continue
        style = _style(str(method), str(rectifier), below)
        axes.plot(curve["target"], curve["forget_quality"], **style)
        if source == "runs":
            bars: dict[str, Any] = style | {"linestyle": "none", "marker": "none"}
            axes.errorbar(curve["target"], curve["forget_quality"], curve["sd"].fillna(0), elinewidth=0.7, **bars)


def _style(method: str, rectifier: str, below: bool) -> dict[str, Any]:
    """Return keywords for a curve: of the paper small and faint where there are those of runs too."""
    style = opaque(method, rectifier) | {"linestyle": rectified(rectifier)[2], "markersize": 5}
    return style | ({"alpha": 0.45, "markersize": 3.5, "linewidth": 0.7} if below else {})


def _signs(drawn: pd.DataFrame) -> list[Line2D]:
    """Return a legend entry for every kind of line that is drawn."""
    grey: dict[str, Any] = {"color": GREY, "marker": "o"}
    handles = []
    for rectifier, label in {"none": "method alone", **WITH}.items():
        if (drawn.loc[drawn["target"].notna(), "rectifier"] == rectifier).any():
            look: dict[str, Any] = _style("ga", rectifier, below=False) | grey
            handles.append(Line2D([], [], **look, label=label))
    if "original" in set(drawn["method"]):
        handles.append(Line2D([], [], **LINES["original"], label="original model"))
    if set(drawn["source"]) == {"runs", "paper"}:
        faint: dict[str, Any] = _style("ga", "gru", below=True) | grey
        handles.append(Line2D([], [], **faint, label="small and faint: the paper"))
    return handles
