"""The trade-off: removal against retention of all trials, on TOFU FQ against MU."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import labels
from analysis.figures import style
from analysis.load.trials import evaluated
from analysis.stats.sweep_results import SHORT_NAMES, SweepResults
from trainables.common.wording import format_count
from trainables.config.settings import Selection

TRADEOFF_COLUMNS = ["kind", "split", "method", "rectifier", "gamma", "tau", "strength", "seed", "n", "id"]
CHOSEN_STYLE: dict[str, Any] = {"linestyle": "none", "markersize": 7, "markeredgewidth": 1.5}
TRIAL_MARK_STYLE: dict[str, Any] = {"linestyle": "none", "markersize": 4, "alpha": 0.5}


def tabulate_tradeoff(results: SweepResults) -> pd.DataFrame:
    """Return the points of a sweep: trials, settings' means over seeds, the chosen ones, reference models."""
    runs, references, goals = results.runs, results.models, results.goals
    metrics = dict.fromkeys([*goals.metrics, goals.removal_goal.metric])
    columns = [*TRADEOFF_COLUMNS, *(f"{metric}{end}" for metric in metrics for end in ("", "_sd"))]
    trials = runs.loc[evaluated(runs)].rename(columns=SHORT_NAMES).assign(kind="trial", n=1)
    means = results.setting_means.rename(columns=SHORT_NAMES).assign(kind="setting")
    chosen = results.chosen.rename(columns=SHORT_NAMES).assign(kind="chosen")
    models = references.assign(kind="reference", method=references["role"], id=references["evaluation"], n=1)
    parts = [part.reindex(columns=columns) for part in (trials, means, chosen, models) if len(part)]
    points = pd.concat(parts) if parts else pd.DataFrame(columns=columns)
    points = points.dropna(subset=[goals.removal_goal.metric, goals.retention.metric]).reset_index(drop=True)
    return points.assign(source="runs", benchmark=goals.benchmark, backbone="")


@mpl.rc_context(style.FIGURE_RC_PARAMS)
def draw_tradeoff(points: pd.DataFrame, rule: Selection) -> Figure:
    """Draw `tabulate_tradeoff`, one panel for each split, with a line at the utility that the sweep's rule asks for."""
    places = style.split_points_by_panel(points)
    figure, panels = style.make_wrapped_panels(max(1, len(places)), 2, 4.2, 2.9, sharey=True)
    if not places:
        panels[0].set_title("no trial has both goals")
        panels[0].set_axis_off()
        return figure
    goals = labels.list_goals_of_benchmark(points["benchmark"].iloc[0])
    x, y = goals.removal_goal, goals.retention
    panels[0].set_ylim(_find_limits(points, y.metric, _list_floors(points, goals, rule)))
    for number, (axes, (title, here)) in enumerate(zip(panels, places, strict=True)):
        ends = _find_limits(here, x.metric)
        axes.set_xlim(ends if x.best == "highest" else (ends[1], ends[0]))
        _draw_panel(axes, here, goals, rule)
        axes.set_title("\n".join(filter(None, [title, _name_outside(axes, here, goals)])))
        axes.set_xlabel(f"{labels.goal_axis_title(x)}, {labels.BETTER_DIRECTION_AXIS_WORDS[x.best]}")
        if number % 2 == 0:
            axes.set_ylabel(f"{labels.goal_axis_title(y)}\n({labels.BETTER_DIRECTION_AXIS_WORDS[y.best]})")
    methods = style.list_drawn_methods(points)
    named = [(style.method_colour(one), labels.method_label(one)) for one in methods]
    handles = [Line2D([], [], color=colour, linewidth=4, label=label) for colour, label in named]
    if handles:
        figure.legend(handles=handles, loc="outside upper center", ncols=7 if len(places) > 1 else 4, handlelength=1)
    rectifiers = labels.order_values(points.loc[points["kind"] == "chosen", "rectifier"])
    for name in rectifiers:
        label = labels.format_rectifier_part(name, "method alone" if len(rectifiers) > 1 else "chosen, mean over seeds")
        panels[0].plot([], [], **(style.marker_style("", name) | CHOSEN_STYLE), label=label)
    panels[0].plot([], [], color=style.GREY, marker="o", **TRIAL_MARK_STYLE, label="every trial")
    style.add_legend(figure)
    return figure


def _find_limits(points: pd.DataFrame, metric: str, floors: Sequence[float] = ()) -> tuple[float, float]:
    """Return an axis's ends: round all points, or round what is bold and the original where that is less than half."""
    bold = points.loc[(points["kind"] == "chosen") | (points["method"] == "original"), metric]
    near, every = [*bold, *floors], [*points[metric], *floors]
    values = near if len(near) > 1 and np.ptp(near) < np.ptp(every) / 2 else every
    margin = 0.08 * (float(np.ptp(values)) or 0.5)
    return min(values) - margin, max(values) + margin


def _select_visible(axes: Axes, points: pd.DataFrame, goals: labels.Goals) -> pd.Series:
    """Return which points are within a panel's axes."""
    x, y = points[goals.removal_goal.metric], points[goals.retention.metric]
    (left, right), (low, high) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    return x.between(left, right) & y.between(low, high)


def _name_outside(axes: Axes, points: pd.DataFrame, goals: labels.Goals) -> str:
    """Return `not shown: retain model (FQ 0.00, MU 0.88), 12 trials` of what a panel leaves out; else nothing."""
    out = points.loc[~_select_visible(axes, points, goals)]
    x, y = goals.removal_goal, goals.retention
    named = [
        f"{style.MODEL_LINES[row['method']]['label']} ({x.short} {row[x.metric]:.2f}, {y.short} {row[y.metric]:.2f})"
        for row in out.loc[out["kind"] == "reference"].to_dict("records")
    ]
    if trials := sum(out["kind"] == "trial"):
        named.append(format_count(trials, "trial"))
    return f"not shown: {', '.join(named)}" if named else ""


def _draw_panel(axes: Axes, points: pd.DataFrame, goals: labels.Goals, rule: Selection) -> None:
    """Draw one panel, from the background to the front: a model's star never covers a method that is close to it."""
    x, y = goals.removal_goal.metric, goals.retention.metric
    low, high = sorted(axes.get_xlim())
    if x == "forget_quality" and low < style.LOG_P_OF_5_PERCENT < high:
        look: dict[str, Any] = {"color": style.GREY, "linestyle": ":", "linewidth": 0.8}
        axes.axvline(style.LOG_P_OF_5_PERCENT, **look, label="p = 0.05", zorder=1)
    if goals.removal_goal.chance is not None:
        axes.axvline(goals.removal_goal.chance, **style.CHANCE_STYLE, zorder=1)
    for floor in _list_floors(points, goals, rule):
        label = f"{rule.share:.0%} of the original's {goals.retention.short}"
        axes.axhline(floor, color=style.GREY, linestyle="--", linewidth=0.8, label=label, zorder=1)
    trials = points.loc[points["kind"] == "trial"]
    for (method, rectifier), cloud in trials.groupby(["method", "rectifier"], sort=False):
        look = style.marker_style(str(method), str(rectifier)) | TRIAL_MARK_STYLE
        large = len(trials) > 1500  # as shapes they would be most of the file
        axes.plot(cloud[x], cloud[y], **look, rasterized=large, zorder=3)
    bold = points.loc[points["kind"].isin(["chosen", "reference"])]
    bold = bold.loc[_select_visible(axes, bold, goals)]
    for row in bold.to_dict("records"):
        if row["method"] in labels.REFERENCE_LABELS:
            face = "black" if row["method"] == "original" else "white"
            look = {"marker": "*", "linestyle": "none", "color": "black", "markerfacecolor": face}
            look |= {"markersize": 13, "clip_on": False, "label": style.MODEL_LINES[row["method"]]["label"]}
            axes.plot(row[x], row[y], **look, zorder=2.5)
            continue
        look = style.marker_style(row["method"], row["rectifier"]) | CHOSEN_STYLE
        axes.plot(row[x], row[y], **look, alpha=0.85, zorder=6)
        bars: dict[str, Any] = {"xerr": row.get(f"{x}_sd"), "yerr": row.get(f"{y}_sd")}
        ecolor = style.method_colour(row["method"])
        axes.errorbar(row[x], row[y], **bars, fmt="none", ecolor=ecolor, elinewidth=0.7, zorder=4)
    for method, pair in bold.groupby("method"):  # an arrow to itself with GRU
        ends = {row["rectifier"]: (row[x], row[y]) for row in pair.to_dict("records")}
        if {"none", "gru"} <= set(ends) and ends["none"] != ends["gru"]:
            look = {"arrowstyle": "-|>", "color": style.method_colour(str(method))}
            look |= {"linewidth": 1.2, "shrinkA": 0, "shrinkB": 3.5}
            axes.annotate("", ends["gru"], ends["none"], arrowprops=look, zorder=5)


def _list_floors(points: pd.DataFrame, goals: labels.Goals, rule: Selection) -> list[float]:
    """Return the utilities that the rule asks for, one for each original model."""
    originals = points.loc[(points["kind"] == "reference") & (points["method"] == "original"), goals.retention.metric]
    return [rule.share * utility for utility in originals] if rule.rule == "utility_floor" else []
