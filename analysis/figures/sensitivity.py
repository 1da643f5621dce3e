"""What settings of GRU do: goals over gamma or tau."""

import math
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.figures.style import CHOSEN_FRAME_STYLE, RC_PARAMS, add_legend, make_panels, marker_style
from analysis.labels import describe_method, normalise_gamma_tau
from analysis.load.goal_columns import goal_head

SENSITIVITY_COLUMNS = ["source", "benchmark", "backbone", "split", "metric", "method", "rectifier", "knob", "setting"]
SENSITIVITY_COLUMNS += ["value", "sd", "n", "chosen"]
OTHER_GRU_SETTING = {"gamma": "tau", "tau": "gamma"}
SETTING_AXIS_LABELS = {"gamma": r"$\gamma$, weight of the new retain gradient", "tau": r"$\tau$, clipping norm"}
CURVE_KEY_COLUMNS = ["source", "backbone", "split", "method", "rectifier"]


def select_rows_around_chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that differ from their study's chosen setting in gamma, tau and strength only."""
    same = ["backbone", "split", "method", "rectifier", "other"]
    return frame.merge(frame.loc[frame["chosen"], same].drop_duplicates(), on=same)


def tabulate_sensitivity(frame: pd.DataFrame, knob: str) -> pd.DataFrame:
    """Return a row per goal, method and value of `knob` (gamma, tau), of two or more; the other one is as chosen."""
    rows = style.select_measured_goal_rows(frame)
    rows = rows.loc[(rows["rectifier"] == "gru") & rows["target"].isna() & (rows[knob] != "")]
    chosen = rows.loc[rows["chosen"], [*CURVE_KEY_COLUMNS, OTHER_GRU_SETTING[knob]]].drop_duplicates(CURVE_KEY_COLUMNS)
    rows = rows.merge(chosen, on=[*CURVE_KEY_COLUMNS, OTHER_GRU_SETTING[knob]])
    several: Any = rows.groupby(CURVE_KEY_COLUMNS)[knob].transform("nunique")
    rows = rows.loc[several > 1].rename(columns={knob: "setting"}).assign(knob=knob)
    rows["at"] = pd.to_numeric(rows["setting"], errors="coerce")
    return style.sort_in_table_order(rows, ["rectifier", "at"]).reindex(columns=SENSITIVITY_COLUMNS)


@mpl.rc_context(RC_PARAMS)
def draw(points: pd.DataFrame) -> Figure:
    """Draw such points: one row for each goal, one column for each backbone and split, settings evenly spaced."""
    metrics, places, knob = (
        style.list_measured_goals(points),
        style.list_backbones_and_splits(points),
        points["knob"].iloc[0],
    )
    figure, grid = make_panels(len(metrics), len(places), 3.4, 1.85, sharex="col", sharey="row")
    for panels, place in zip(grid.T, places, strict=True):
        here = style.select_panel_rows(points, place)
        here = here.assign(setting=here["setting"].map(lambda text: normalise_gamma_tau(str(text)), na_action="ignore"))
        found = set(here["setting"].dropna())
        ordered = sorted(found, key=lambda text: math.inf if text == "none" else float(text))
        ticks = {text: place for place, text in enumerate(ordered)}
        panels[-1].set_xticks(range(len(ticks)), list(ticks), fontsize=7, rotation=90 if len(ticks) > 9 else 0)
        for axes, metric in zip(panels, metrics, strict=True):
            _draw_panel(axes, here.loc[here["metric"] == metric.metric], ticks)
        panels[0].set_title(style.format_panel_title(place))
        panels[-1].set_xlabel(SETTING_AXIS_LABELS[knob])
    for axes, metric in zip(grid[:, 0], metrics, strict=True):
        axes.set_ylabel(goal_head(metric))
    add_legend(figure)
    return figure


def _draw_panel(axes: Axes, rows: pd.DataFrame, ticks: dict[str, int]) -> None:
    """Draw one goal's curves; a point without clipping or average (`none`) is joined to no other."""
    for name, curve in rows.dropna(subset=["setting"]).groupby("method"):
        method = str(name)
        look = marker_style(method, "gru") | {"markersize": 5, "label": describe_method(method, "gru")}
        look |= {"linestyle": "-", "alpha": 0.7}  # where two meet both are seen
        x, joined = curve["setting"].map(ticks.get), curve["setting"] != "none"
        axes.plot(x[joined], curve.loc[joined, "value"], **look)
        alone: dict[str, Any] = look | {"linestyle": "none", "label": ""}
        axes.plot(x[~joined], curve.loc[~joined, "value"], **alone)
        if "runs" in set(curve["source"]):
            bars: dict[str, Any] = alone | {"marker": "none", "elinewidth": 0.7}
            axes.errorbar(x, curve["value"], curve["sd"].fillna(0), **bars)
            best = curve.loc[curve["chosen"]]
            framed: dict[str, Any] = marker_style(method, "gru") | CHOSEN_FRAME_STYLE
            axes.plot(x[best.index], best["value"], **framed, label="chosen setting" if len(best) else "", zorder=5)
