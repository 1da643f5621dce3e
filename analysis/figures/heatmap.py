"""Heat maps of tau and gamma: methods in rows, a panel for each goal, each setting's number in its cell."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.figures import panel_data
from analysis.figures.style import HALO, STYLE, make_panels
from analysis.labels import method_label
from analysis.load.goal_columns import Column
from analysis.number_format import format_number, plain_setting

COLUMNS = ["source", "benchmark", "backbone", "split", "metric", "method", "gamma", "tau", "value", "sd", "n", "chosen"]
COLOURS = "cividis"
"""Even in brightness, in print without colour and for those who do not see red and green apart."""


def cell_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each goal, method, gamma and tau of GRU, of a frame of `panel_data.vary_only_gamma_tau`."""
    rows = panel_data.select_goals(frame)
    rows = rows.loc[(rows["rectifier"] == "gru") & rows["target"].isna() & (rows["gamma"] != "") & (rows["tau"] != "")]
    for knob in ("gamma", "tau"):
        rows[knob] = rows[knob].map(plain_setting)
        rows[f"{knob} at"] = pd.to_numeric(rows[knob], errors="coerce")
    rows = rows.drop_duplicates(["source", "backbone", "split", "metric", "method", "gamma", "tau"])
    return panel_data.sort_points(rows, ["gamma at", "tau at"]).reindex(columns=COLUMNS)


@mpl.rc_context(STYLE)
def draw(points: pd.DataFrame) -> Figure:
    """Draw `cell_points` of one source, backbone and split: tau upwards, gamma to the right, `none` last of each.

    Brighter is better. A setting that was not run is hatched; the chosen one has a frame.
    """
    metrics, methods = panel_data.compared_columns(points), panel_data.list_methods(points)
    gammas, taus = panel_data.order_settings(points["gamma"]), panel_data.order_settings(points["tau"])
    size = 0.9 + 0.27 * len(gammas), 0.5 + 0.19 * max(len(taus), 3)
    figure, grid = make_panels(len(methods), len(metrics), *size, sharex=True, sharey=True)
    place = points["backbone"].iloc[0], points["split"].iloc[0]
    figure.suptitle(panel_data.place_title(place), fontsize=8, fontweight="bold")
    for panels, metric in zip(grid.T, metrics, strict=True):
        here = points.loc[points["metric"] == metric.metric]
        for axes, method in zip(panels, methods, strict=True):
            cells = here.loc[here["method"] == method].set_index(["tau", "gamma"])
            _draw_panel(axes, cells, gammas, taus, Normalize(here["value"].min(), here["value"].max()), metric)
            axes.set_title(f"{method_label(method)}: {metric.head}")
        panels[-1].set_xlabel(r"$\gamma$")
    for axes in grid[:, 0]:
        axes.set_ylabel(r"$\tau$")
    return figure


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, gammas: list[str], taus: list[str], norm: Normalize, metric: Column
) -> None:
    """Draw one method's goal, one cell for each setting."""
    colours = mpl.colormaps[COLOURS if metric.best == "highest" else f"{COLOURS}_r"]
    missing = {"facecolor": "white", "edgecolor": "#BBBBBB", "hatch": "////", "linewidth": 0, "zorder": 0}
    axes.add_patch(Rectangle((-0.5, -0.5), len(gammas), len(taus), **missing))
    values: Any = rows["value"].unstack()
    cells = values.reindex(index=taus, columns=gammas)
    axes.imshow(cells, cmap=colours, norm=norm, aspect="auto", origin="lower", zorder=1)
    decimals = 1 if float(norm.vmax or 0) - float(norm.vmin or 0) >= 1 else 2
    each: Any = rows.to_dict("index")
    for (tau, gamma), row in each.items():
        x, y = gammas.index(gamma), taus.index(tau)
        shade = float(np.dot(colours(norm(row["value"]))[:3], (0.299, 0.587, 0.114)))
        look: dict[str, Any] = {"ha": "center", "va": "center", "color": "black" if shade > 0.43 else "white"}
        axes.text(x, y, format_number(row["value"], decimals), fontsize=5.5, **look)
        if row["chosen"]:
            frame = {"fill": False, "edgecolor": "black", "linewidth": 1.4, "zorder": 4, "path_effects": HALO}
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **frame, clip_on=False))
    axes.set_xticks(range(len(gammas)), gammas, rotation=90 if len(gammas) > 6 else 0, fontsize=7)
    axes.set_yticks(range(len(taus)), taus, fontsize=7)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
