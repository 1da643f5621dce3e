"""Figures of what rectifiers change: each against none; GRU's pairs of bars and sensitivity, as the paper has them."""

import math
from collections.abc import Sequence
from string import ascii_lowercase
from textwrap import wrap
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import labels
from analysis.figures import style
from analysis.stats.rectifier_comparison import RectifierComparison
from trainables.benchmarks import Goal

CHANGE_COLOURS = {1.0: style.GAIN_COLOUR, -1.0: style.LOSS_COLOUR}
"""Of better and worse; grey: neither, or not tested."""
CHANGE_LEGEND_WORDS = {1.0: "better", -1.0: "worse", 0.0: "not significant"}

GRU_PAIR_COLUMNS = ["source", "benchmark", "backbone", "split", "metric", "method", "none", "none_sd", "none_n"]
GRU_PAIR_COLUMNS += ["gru", "gru_sd", "gru_n", "improvement"]
GRU_PAIR_KEY_COLUMNS = GRU_PAIR_COLUMNS[:6]
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

SENSITIVITY_COLUMNS = ["source", "benchmark", "backbone", "split", "metric", "method", "rectifier", "knob", "setting"]
SENSITIVITY_COLUMNS += ["value", "sd", "n", "chosen"]
SETTING_AXIS_LABELS = {"gamma": r"$\gamma$, weight of the new retain gradient", "tau": r"$\tau$, clipping norm"}
CURVE_KEY_COLUMNS = ["source", "backbone", "split", "method", "rectifier"]


def list_forest_plot_points(comparison: RectifierComparison) -> pd.DataFrame:
    """Return `RectifierComparison.differences` as far as there is something to draw, `gains` as a text."""
    rows = comparison.differences
    rows = rows.loc[rows["n"] > 0]
    return rows.assign(gains=[" ".join(f"{gain:.4g}" for gain in gains) for gains in rows["gains"]])


@mpl.rc_context(style.FIGURE_RC_PARAMS)
def draw_rectifier_forest_plot(points: pd.DataFrame, goals: Sequence[Goal]) -> Figure:
    """Draw one split's `list_forest_plot_points`: objectives in rows, goals in columns, better to the right."""
    methods, names = labels.order_values(points["method"]), labels.order_values(points["rectifier"])
    shown = [goal for goal in goals if goal.metric in set(points["metric"])]
    size = len(methods), len(shown), 1.9, 0.55 + 0.155 * len(names)
    figure, grid = style.make_panels(*size, sharex="col", sharey=True)
    split = labels.format_forget_split(str(points["split"].iloc[0]))
    figure.suptitle(f"{split}: change against no rectifier", fontsize=8)
    for line, method in zip(grid, methods, strict=True):
        for axes, goal in zip(line, shown, strict=True):
            axes.set_title(f"{labels.method_label(method)}\n{goal.short}", loc="left", fontweight="bold", fontsize=7)
            axes.grid(axis="y", color="#eeeeee", linewidth=0.6)
            axes.axvline(0, color="black", linewidth=0.7, zorder=1)
            here = points.loc[(points["method"] == method) & (points["metric"] == goal.metric)]
            for row in here.to_dict("records"):
                colour, place = CHANGE_COLOURS.get(row["sign"], style.GREY), names.index(row["rectifier"])
                seeds = [float(gain) for gain in row["gains"].split()]
                # where no interval is known the line is from the lowest to the highest seed
                ends = (min(seeds), max(seeds)) if pd.isna(row["low"]) else (row["low"], row["high"])
                axes.plot(ends, [place] * 2, color=colour, linewidth=1.1, zorder=2, solid_capstyle="butt")
                axes.plot(row["difference"], place, marker="o", markersize=3.6, color=colour, zorder=3)
    for axes, goal in zip(grid[-1], shown, strict=True):
        axes.locator_params("x", nbins=3)
        axes.tick_params("x", labelsize=6.5)
        axes.set_xlabel(labels.BETTER_DIRECTION_AXIS_WORDS[goal.best])
        if goal.best == "lowest":
            axes.invert_xaxis()
    grid[0, 0].set_yticks(range(len(names)), list(map(labels.format_rectifier_name, names)))
    grid[0, 0].set_ylim(len(names) - 0.5, -0.5)
    for sign in filter(set(points["sign"]).__contains__, CHANGE_LEGEND_WORDS):
        look = {"color": CHANGE_COLOURS.get(sign, style.GREY), "marker": "o", "markersize": 3.6}
        grid[0, 0].plot([], [], label=CHANGE_LEGEND_WORDS[sign], **look)
    style.add_legend(figure)
    return figure


def tabulate_gru_pairs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each panel and method with GRU: its value alone and with it; `improvement` > 0 is better."""
    rows = style.select_measured_goal_rows(frame)
    rows = rows.loc[rows["chosen"] & rows["target"].isna()]
    sides = []
    for side in ("none", "gru"):
        names = {"value": side, "sd": f"{side}_sd", "n": f"{side}_n"}
        sides.append(rows.loc[rows["rectifier"] == side, [*GRU_PAIR_KEY_COLUMNS, *names]].rename(columns=names))
    found = sides[0].merge(sides[1], on=GRU_PAIR_KEY_COLUMNS, how="outer")
    found = found.loc[found["method"].isin([*sides[1]["method"], *labels.REFERENCE_LABELS])]
    signs = {one.metric: 1.0 if one.best == "highest" else -1.0 for one in style.list_measured_goals(found)}
    gains = found["metric"].map(signs).astype(float) * (found["gru"] - found["none"]).astype(float)
    found = found.assign(improvement=gains.round(10))
    if found["improvement"].isna().all():
        found = found.iloc[:0]
    return style.sort_points_in_table_order(found.reindex(columns=GRU_PAIR_COLUMNS))


@mpl.rc_context(style.FIGURE_RC_PARAMS)
def draw_gru_bar_pairs(points: pd.DataFrame) -> Figure:
    """Draw `tabulate_gru_pairs`, one panel for each backbone, split and metric."""
    metrics, methods = style.list_measured_goals(points), style.list_drawn_methods(points)
    panels = [(place, rows, goal) for place, rows in style.split_points_by_panel(points) for goal in metrics]
    across = max(1, 4 // len(metrics)) * len(metrics)
    figure, grid = style.make_wrapped_panels(len(panels), across, 0.75 + 0.2 * len(methods), 2.0)
    for number, (axes, (place, rows, goal)) in enumerate(zip(grid, panels, strict=True)):
        _draw_bars(axes, rows.loc[rows["metric"] == goal.metric], methods, goal)
        title = f"({ascii_lowercase[number % 26]}) {place}"
        axes.set_title("\n".join(wrap(title, 28)), fontsize=7)
        if number + across < len(panels):
            axes.set_xticklabels([])
    style.add_legend(figure)
    return figure


def _draw_bars(axes: Axes, rows: pd.DataFrame, methods: list[str], goal: Goal) -> None:
    rows = rows.assign(at=[methods.index(name) if name in methods else math.nan for name in rows["method"]])
    for row in rows.loc[rows["method"].isin(labels.REFERENCE_LABELS)].dropna(subset=["none"]).to_dict("records"):
        axes.axhline(row["none"], **style.MODEL_LINES[row["method"]], zorder=1)
    if goal.chance is not None:
        axes.axhline(goal.chance, **style.CHANCE_STYLE, zorder=4.5)
    values = [rows[side] + sign * rows[f"{side}_sd"].fillna(0) for side in RECTIFIER_BAR_STYLES for sign in (-1, 1)]
    low, high = (float(end([0.0, *pd.concat(values).dropna()])) for end in (min, max))
    room, below = 0.3 * ((high - low) or 1.0), abs(low) > high  # for the numbers
    axes.set_ylim((low - room, high) if below else (low, high + room))
    rows = rows.dropna(subset=["at"])
    for shift, (side, face) in zip((-BAR_WIDTH / 2, BAR_WIDTH / 2), RECTIFIER_BAR_STYLES.items(), strict=True):
        bars = rows.dropna(subset=[side])
        errors: dict[str, Any] = {"yerr": bars[f"{side}_sd"], "error_kw": {"elinewidth": 0.8, "zorder": 4}}
        axes.bar(bars["at"] + shift, bars[side], BAR_WIDTH, **errors, **face, zorder=2)
    for sign, how in CHANGE_BAR_STYLES.items():  # from the end of the one bar to the other's
        if len(bars := rows.loc[sign * rows["improvement"] > 0]):
            axes.bar(bars["at"] + BAR_WIDTH / 2, bars["gru"] - bars["none"], BAR_WIDTH, bars["none"], **how, zorder=2.5)
    look: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 6, "rotation": 90}
    look |= {"xytext": (0, -3), "va": "top"} if below else {"xytext": (0, 3), "va": "bottom"}
    for row in rows.dropna(subset=["improvement"]).to_dict("records"):
        change = round(row["improvement"], 3)
        axes.annotate(f"{change:+.3g}" if change else "0", (row["at"], low if below else high), **look)
    axes.axhline(0, color="black", linewidth=0.6, zorder=3)
    axes.set_xlim(-0.6, len(methods) - 0.4)
    axes.set_xticks(range(len(methods)), [labels.method_label(method) for method in methods], rotation=90, fontsize=7)
    axes.tick_params("x", length=0)
    axes.set_ylabel(labels.goal_head(goal), labelpad=2)


def select_rows_varying_gru_settings(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that differ from their study's chosen setting in gamma, tau and strength only."""
    same = ["backbone", "split", "method", "rectifier", "other"]
    return frame.merge(frame.loc[frame["chosen"], same].drop_duplicates(), on=same)


def tabulate_sensitivity(frame: pd.DataFrame, knob: str) -> pd.DataFrame:
    """Return a row per goal, method and value of `knob` (gamma, tau), of two or more; the other one is as chosen."""
    rows = style.select_measured_goal_rows(select_rows_varying_gru_settings(frame))
    rows = rows.loc[(rows["rectifier"] == "gru") & rows["target"].isna() & (rows[knob] != "")]
    line = [*CURVE_KEY_COLUMNS, labels.OTHER_GRU_SETTING[knob]]
    rows = rows.merge(rows.loc[rows["chosen"], line].drop_duplicates(CURVE_KEY_COLUMNS), on=line)
    several: Any = rows.groupby(CURVE_KEY_COLUMNS)[knob].transform("nunique")
    rows = rows.loc[several > 1].rename(columns={knob: "setting"}).assign(knob=knob)
    rows["at"] = pd.to_numeric(rows["setting"], errors="coerce")
    return style.sort_points_in_table_order(rows, "at").reindex(columns=SENSITIVITY_COLUMNS)


@mpl.rc_context(style.FIGURE_RC_PARAMS)
def draw_gamma_tau_sensitivity(points: pd.DataFrame) -> Figure:
    """Draw `tabulate_sensitivity`: a row for each goal, a column for each backbone and split, settings as words."""
    metrics, places = style.list_measured_goals(points), style.split_points_by_panel(points)
    figure, grid = style.make_panels(len(metrics), len(places), 3.4, 1.85, sharex="col", sharey="row")
    for panels, (title, here) in zip(grid.T, places, strict=True):
        here = here.assign(setting=here["setting"].map(labels.normalise_gamma_tau, na_action="ignore"))
        ticks = {text: place for place, text in enumerate(labels.order_settings(here["setting"].dropna()))}
        panels[-1].set_xticks(range(len(ticks)), list(ticks), fontsize=7, rotation=90 if len(ticks) > 9 else 0)
        for axes, metric in zip(panels, metrics, strict=True):
            _draw_curves(axes, here.loc[here["metric"] == metric.metric], ticks)
        panels[0].set_title(title)
        panels[-1].set_xlabel(SETTING_AXIS_LABELS[points["knob"].iloc[0]])
    for axes, metric in zip(grid[:, 0], metrics, strict=True):
        axes.set_ylabel(labels.goal_head(metric))
    style.add_legend(figure)
    return figure


def _draw_curves(axes: Axes, rows: pd.DataFrame, ticks: dict[str, int]) -> None:
    """Draw one goal's curves; a point without clipping or average (`none`) is joined to no other."""
    for name, curve in rows.dropna(subset=["setting"]).groupby("method"):
        method = str(name)
        look = style.marker_style(method, "gru") | {"markersize": 5, "label": labels.describe_method(method, "gru")}
        look |= {"linestyle": "-", "alpha": 0.7}  # where two meet both are seen
        x, joined = curve["setting"].map(ticks.get), curve["setting"] != "none"
        axes.plot(x[joined], curve.loc[joined, "value"], **look)
        alone: dict[str, Any] = look | {"linestyle": "none", "label": ""}
        axes.plot(x[~joined], curve.loc[~joined, "value"], **alone)
        if "runs" in set(curve["source"]):
            bars: dict[str, Any] = alone | {"marker": "none", "elinewidth": 0.7}
            axes.errorbar(x, curve["value"], curve["sd"].fillna(0), **bars)
            best = curve.loc[curve["chosen"]]
            framed: dict[str, Any] = style.marker_style(method, "gru") | style.CHOSEN_FRAME_STYLE
            axes.plot(x[best.index], best["value"], **framed, label="chosen setting" if len(best) else "", zorder=5)
