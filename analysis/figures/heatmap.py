"""Heat maps of tau and gamma: methods in rows, a panel for each goal, each setting's number in its cell."""

from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.figures import panel_data
from analysis.figures.style import HALO, STYLE
from analysis.labels import method_label
from analysis.load.goal_columns import Column
from analysis.number_format import format_number, plain_setting

COLUMNS = ["source", "benchmark", "backbone", "split", "metric", "method", "gamma", "tau", "value", "sd", "n", "chosen"]
COLOURS = "cividis"
"""Even in brightness, in print without colour and for those who do not see red and green apart."""


def cell_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each goal, method, gamma and tau of GRU, of a frame of `panel_data.vary_only_gamma_tau`."""
    rows = panel_data.add_source(frame)
    rows = rows.loc[(rows["rectifier"] == "gru") & rows["target"].isna() & rows["value"].notna()]
    metrics = [column.metric for column in panel_data.compared_columns(frame)]
    rows = rows.loc[rows["metric"].isin(metrics) & (rows["gamma"] != "") & (rows["tau"] != "")]
    for knob in ("gamma", "tau"):
        rows[knob] = rows[knob].map(plain_setting)
        rows[f"{knob} at"] = pd.to_numeric(rows[knob], errors="coerce")
    rows = rows.drop_duplicates(["source", "backbone", "split", "metric", "method", "gamma", "tau"])
    return panel_data.sort_points(rows, metrics, ["gamma at", "tau at"]).reindex(columns=COLUMNS)


@mpl.rc_context(STYLE)
def draw(points: pd.DataFrame) -> Figure:
    """Draw `cell_points` of one source, backbone and split: tau upwards, gamma to the right, `none` last of each.

    Brighter is better. A setting that was not run is hatched; the chosen one has a frame.
    """
    metrics, methods = panel_data.compared_columns(points), panel_data.list_methods(points)
    gammas, taus = panel_data.order_settings(points["gamma"]), panel_data.order_settings(points["tau"])
    width = min(7.4, 1.5 + len(metrics) * (0.9 + 0.27 * len(gammas)))
    height = 0.75 + len(methods) * (0.5 + 0.19 * max(len(taus), 3))
    figure = Figure(figsize=(max(width, 4.0), height), layout="constrained")
    place = points["backbone"].iloc[0], points["split"].iloc[0]
    figure.suptitle(panel_data.place_title(place), fontsize=8, fontweight="bold")
    grid = figure.subplots(len(methods), len(metrics), sharex=True, sharey=True, squeeze=False)
    for panels, metric in zip(grid.T, metrics, strict=True):
        here = points.loc[points["metric"] == metric.metric]
        norm = Normalize(here["value"].min(), here["value"].max())
        for axes, method in zip(panels, methods, strict=True):
            _draw_panel(axes, here.loc[here["method"] == method], gammas, taus, norm, metric)
            axes.set_title(f"{method_label(method)}: {metric.head}")
        panels[-1].set_xlabel(r"$\gamma$")
        bar = figure.colorbar(
            ScalarMappable(norm, _colour_map(metric)), ax=panels.tolist(), fraction=0.04, aspect=25, pad=0.02
        )
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=6)
    for axes in grid[:, 0]:
        axes.set_ylabel(r"$\tau$")
    return figure


def _colour_map(metric: Column) -> Colormap:
    return mpl.colormaps[COLOURS if metric.best == "highest" else f"{COLOURS}_r"]


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, gammas: list[str], taus: list[str], norm: Normalize, metric: Column
) -> None:
    """Draw one method's goal, one cell for each setting."""
    cells = np.full((len(taus), len(gammas)), math.nan)
    missing = {"facecolor": "white", "edgecolor": "#BBBBBB", "hatch": "////", "linewidth": 0, "zorder": 0}
    axes.add_patch(Rectangle((-0.5, -0.5), len(gammas), len(taus), **missing))
    span = norm.vmax - norm.vmin if norm.vmax is not None and norm.vmin is not None else 0.0
    for row in rows.to_dict("records"):
        x, y = gammas.index(row["gamma"]), taus.index(row["tau"])
        cells[y, x] = row["value"]
        shade = float(np.dot(_colour_map(metric)(norm(row["value"]))[:3], (0.299, 0.587, 0.114)))
        text = format_number(row["value"], 1 if span >= 1 else 2)
        axes.text(x, y, text, ha="center", va="center", fontsize=5.5, color="black" if shade > 0.43 else "white")
        if row["chosen"]:
            frame = {"fill": False, "edgecolor": "black", "linewidth": 1.4, "zorder": 4, "path_effects": HALO}
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **frame, clip_on=False))
    colours = _colour_map(metric)
    axes.imshow(np.ma.masked_invalid(cells), cmap=colours, norm=norm, aspect="auto", origin="lower", zorder=1)
    axes.set_xticks(range(len(gammas)), gammas, rotation=90 if len(gammas) > 6 else 0, fontsize=7)
    axes.set_yticks(range(len(taus)), taus, fontsize=7)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
