"""Paired bars, the paper's figures of its main tables: each method alone and with GRU, and what GRU changes."""

import math
from string import ascii_lowercase
from textwrap import wrap
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.labels import REFERENCE_LABELS, method_label
from analysis.load.goal_columns import goal_head
from trainables.benchmarks import Goal

GRU_PAIR_COLUMNS = ["source", "benchmark", "backbone", "split", "metric", "method", "none", "none_sd", "none_n"]
GRU_PAIR_COLUMNS += ["gru", "gru_sd", "gru_n", "improvement"]
BAR_PAIR_KEY_COLUMNS = GRU_PAIR_COLUMNS[:6]
MAX_PANELS_PER_ROW = 4
BAR_EDGE_STYLE: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.7}
RECTIFIER_BAR_STYLES: dict[str, dict[str, Any]] = {
    "none": {"facecolor": "white", "label": "method alone", **BAR_EDGE_STYLE},
    "gru": {"facecolor": "#BBBBBB", "label": "w/ GRU", **BAR_EDGE_STYLE},
}
CHANGE_BAR_STYLES: dict[int, dict[str, Any]] = {
    1: {"facecolor": style.GAIN_COLOUR, "label": "improvement w/ GRU", **BAR_EDGE_STYLE},
    -1: {"facecolor": style.LOSS_COLOUR, "label": "worse w/ GRU", **BAR_EDGE_STYLE, "hatch": "/////"},
}
BAR_WIDTH = 0.36
"""Of a bar, where the distance between methods is 1."""


def tabulate_gru_pairs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each panel and method with GRU: its value alone and with it; `improvement` > 0 is better."""
    rows = style.select_measured_goal_rows(frame)
    rows = rows.loc[rows["chosen"] & rows["target"].isna()]
    sides = []
    for side in ("none", "gru"):
        names = {"value": side, "sd": f"{side}_sd", "n": f"{side}_n"}
        sides.append(rows.loc[rows["rectifier"] == side, [*BAR_PAIR_KEY_COLUMNS, *names]].rename(columns=names))
    found = sides[0].merge(sides[1], on=BAR_PAIR_KEY_COLUMNS, how="outer")
    found = found.loc[found["method"].isin([*sides[1]["method"], *REFERENCE_LABELS])]
    signs = {one.metric: 1.0 if one.best == "highest" else -1.0 for one in style.list_measured_goals(found)}
    gains = found["metric"].map(signs).astype(float) * (found["gru"] - found["none"]).astype(float)
    found = found.assign(improvement=gains.round(10))
    if found["improvement"].isna().all():
        found = found.iloc[:0]
    return style.sort_in_table_order(found.reindex(columns=GRU_PAIR_COLUMNS))


@mpl.rc_context(style.RC_PARAMS)
def draw(points: pd.DataFrame) -> Figure:
    """Draw `tabulate_gru_pairs`, one panel for each backbone, split and metric."""
    metrics, methods = style.list_measured_goals(points), style.list_methods(points)
    panels = [(place, goal) for place in style.list_backbones_and_splits(points) for goal in metrics]
    across = max(1, MAX_PANELS_PER_ROW // len(metrics)) * len(metrics)
    figure, grid = style.make_wrapped_panels(len(panels), across, 0.75 + 0.2 * len(methods), 2.0)
    for number, (axes, (place, goal)) in enumerate(zip(grid, panels, strict=True)):
        here = style.select_panel_rows(points, place)
        _draw_panel(axes, here.loc[here["metric"] == goal.metric], methods, goal)
        title = f"({ascii_lowercase[number % 26]}) {style.format_panel_title(place)}"
        axes.set_title("\n".join(wrap(title, 28)), fontsize=7)
        if number + across < len(panels):
            axes.set_xticklabels([])
    style.add_legend(figure)
    return figure


def _draw_panel(axes: Axes, rows: pd.DataFrame, methods: list[str], goal: Goal) -> None:
    rows = rows.assign(at=[methods.index(name) if name in methods else math.nan for name in rows["method"]])
    for row in rows.loc[rows["method"].isin(REFERENCE_LABELS)].dropna(subset=["none"]).to_dict("records"):
        axes.axhline(row["none"], **style.MODEL_LINES[row["method"]], zorder=1)
    if goal.chance is not None:
        axes.axhline(goal.chance, **style.CHANCE_STYLE, zorder=4.5)
    values = [rows[side] + sign * rows[f"{side}_sd"].fillna(0) for side in RECTIFIER_BAR_STYLES for sign in (-1, 1)]
    low, high = (float(end([0.0, *pd.concat(values).dropna()])) for end in (min, max))
    room, below = 0.3 * ((high - low) or 1.0), abs(low) > high  # for the numbers
    axes.set_ylim((low - room, high) if below else (low, high + room))
    rows = rows.dropna(subset=["at"])
    for shift, (side, look) in zip((-BAR_WIDTH / 2, BAR_WIDTH / 2), RECTIFIER_BAR_STYLES.items(), strict=True):
        bars = rows.dropna(subset=[side])
        errors: dict[str, Any] = {"yerr": bars[f"{side}_sd"], "error_kw": {"elinewidth": 0.8, "zorder": 4}}
        axes.bar(bars["at"] + shift, bars[side], BAR_WIDTH, **errors, **look, zorder=2)
    for sign, how in CHANGE_BAR_STYLES.items():  # from the end of the one bar to the other's
        if len(bars := rows.loc[sign * rows["improvement"] > 0]):
            axes.bar(bars["at"] + BAR_WIDTH / 2, bars["gru"] - bars["none"], BAR_WIDTH, bars["none"], **how, zorder=2.5)
    for row in rows.dropna(subset=["improvement"]).to_dict("records"):
        change, way = row["improvement"], -1 if below else 1
        text = f"{round(change, 3):+.3g}" if round(change, 3) else "0"
        axes.annotate(
            text,
            (row["at"], low if below else high),
            (0, 3 * way),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            fontsize=6,
            rotation=90,
        )
    axes.axhline(0, color="black", linewidth=0.6, zorder=3)
    axes.set_xlim(-0.6, len(methods) - 0.4)
    axes.set_xticks(range(len(methods)), [method_label(method) for method in methods], rotation=90, fontsize=7)
    axes.tick_params("x", length=0)
    axes.set_ylabel(goal_head(goal), labelpad=2)
