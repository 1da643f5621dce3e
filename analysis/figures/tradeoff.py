"""The trade-off: removal against retention, on TOFU FQ against MU. With all trials, or arrows of the methods alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures import panel_data
from analysis.figures.style import (
    CHANCE,
    GREY,
    LINES,
    SIGNIFICANT,
    STYLE,
    add_legend,
    line_style,
    marker_style,
    method_colour,
    rectifier_style,
    solid_style,
    wrap_panels,
)
from analysis.labels import REFERENCES, method_label, order_rectifiers, rectifier_label
from analysis.load.goal_columns import BETTER, Goals, find_goals, goal_title
from analysis.load.trials import evaluated
from analysis.stats.chosen_settings import SHORT
from analysis.stats.sweep_results import Results
from trainables.benchmarks import Goal
from trainables.benchmarks.selection import pareto_front
from trainables.config.settings import Selection

COLUMNS = ["kind", "split", "method", "rectifier", "gamma", "tau", "strength", "seed", "n", "id"]
ARROW_KEY = ["source", "benchmark", "backbone", "split", "method", "rectifier"]
QUALITY = "forget_quality"
FRONT: dict[str, Any] = {"color": "#999999", "marker": "s", "ms": 2.5}
CHOSEN: dict[str, Any] = {"linestyle": "none", "markersize": 7, "markeredgewidth": 1.5}
TRIAL: dict[str, Any] = {"linestyle": "none", "markersize": 4, "alpha": 0.5}
CROWD = 1500
"""More faint trials in a panel than that are an image inside the figure: as shapes they would be most of its file."""


def trial_points(results: Results) -> pd.DataFrame:
    """Return the points of a sweep: trials, settings' means over seeds, the chosen ones, reference models.

    `front` marks the settings of a split that no other beats, and that are better than the original model on a goal.
    """
    runs, references, goals = results.runs, results.models, results.goals
    metrics = dict.fromkeys([*goals.metrics, goals.removal.metric])
    columns = [*COLUMNS, *(f"{metric}{end}" for metric in metrics for end in ("", "_sd"))]
    trials = runs.loc[evaluated(runs)].rename(columns=SHORT).assign(kind="trial", n=1)
    means = results.means.rename(columns=SHORT).assign(kind="setting")
    chosen = results.chosen.rename(columns=SHORT).assign(kind="chosen")
    models = references.assign(kind="reference", method=references["role"], id=references["evaluation"], n=1)
    parts = [part.reindex(columns=columns) for part in (trials, means, chosen, models) if len(part)]
    points = pd.concat(parts) if parts else pd.DataFrame(columns=columns)
    points = points.dropna(subset=[goals.removal.metric, goals.retention.metric]).reset_index(drop=True)
    points["front"] = points.index.isin(_find_front(points, goals))
    return points.assign(source="runs", benchmark=goals.benchmark, backbone="")


def _find_front(points: pd.DataFrame, goals: Goals) -> list[Hashable]:
    """Return the places of the settings that are on their split's front."""
    x, y = (goal.gain(1) * points[goal.metric].astype(float) for goal in (goals.removal, goals.retention))
    gains = points[["kind", "split", "method"]].assign(x=x, y=y)
    originals = gains.loc[(gains["kind"] == "reference") & (gains["method"] == "original")].set_index("split")
    settings = gains.loc[gains["kind"] == "setting"]
    models = originals[["x", "y"]].reindex(settings["split"]).to_numpy()  # NaN where unknown: not beaten
    beaten = (settings[["x", "y"]].to_numpy() <= models).all(axis=1)
    groups: Any = settings.loc[~beaten].groupby("split")[["x", "y"]]
    return [place for _, group in groups for place in pareto_front(list(group.itertuples(name=None)))]


def arrow_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return removal and retention (TOFU: FQ, MU) of each panel, method and rectifier that the rule chose.

    Removal by several goals is their mean, in the column `removal`.
    """
    rows = panel_data.select_goals(frame)
    goals = find_goals(rows["benchmark"].iloc[0])
    rows = rows.loc[rows["chosen"] & rows["target"].isna()]
    wide = rows.pivot_table(index=ARROW_KEY, columns="metric", values="value", sort=False).reset_index()
    if len(goals.removals) > 1:
        wide["removal"] = wide.reindex(columns=[goal.metric for goal in goals.removals]).mean(axis=1, skipna=False)
    both = [goals.removal.metric, goals.retention.metric]
    found = wide.reindex(columns=[*ARROW_KEY, *both]).dropna(subset=both).rename_axis(columns=None)
    found["kind"] = found["method"].isin(REFERENCES).map({True: "reference", False: "chosen"})
    found["with"] = found["rectifier"].map(order_rectifiers(found["rectifier"]).index)
    return panel_data.sort_points(found, ["with"]).drop(columns="with")


@mpl.rc_context(STYLE)
def draw(points: pd.DataFrame, rule: Selection | None = None) -> Figure:
    """Draw `trial_points` or `arrow_points`, one panel for each backbone and split: better to the right and upwards.

    `rule`: the sweep's, for a line at the utility that it asks for.
    """
    places = panel_data.list_panels(points)
    figure, panels = wrap_panels(max(1, len(places)), 2, 4.2, 2.9, sharey=True)
    if not places:
        panels[0].set_title("no trial has both goals")
        panels[0].set_axis_off()
        return figure
    goals = find_goals(points["benchmark"].iloc[0])
    x, y = goals.removal, goals.retention
    panels[0].set_ylim(_y_limits([*points[y.metric], *_list_floors(points, goals, rule)]))
    for number, (axes, place) in enumerate(zip(panels, places, strict=True)):
        _draw_panel(axes, panel_data.select_panel(points, place), goals, rule)
        axes.set_title(panel_data.panel_title(place))
        axes.set_xlabel(f"{goal_title(x)}, {BETTER[x.best]}")
        axes.set_ylabel(f"{goal_title(y)}\n({BETTER[y.best]})" if number % 2 == 0 else "")
    methods = panel_data.list_methods(points)
    looks = {method_label(name): marker_style(name, "gru") | {"linestyle": line_style(name)} for name in methods}
    handles = [Line2D([], [], **look, label=label) for label, look in looks.items()]
    if handles:
        figure.legend(handles=handles, loc="outside upper center", ncols=7 if len(places) > 1 else 4)
    _add_signs(panels[0], points)
    add_legend(figure)
    return figure


def _add_signs(axes: Axes, points: pd.DataFrame) -> None:
    """Give the legend a grey sign of each rectifier, and of trials."""
    names = order_rectifiers(points.loc[points["kind"] == "chosen", "rectifier"])
    signs = [(rectifier_style(name).fill, CHOSEN, rectifier_label(name, "method alone")) for name in names]
    signs += [("full", TRIAL, "every trial")] * ("trial" in set(points["kind"]))
    for fill, look, label in signs:
        axes.plot([], [], color=GREY, marker="o", fillstyle=fill, **look, label=label)


def _draw_panel(axes: Axes, points: pd.DataFrame, goals: Goals, rule: Selection | None) -> None:
    """Draw one panel, from the background to the front: a model's star never covers a method that is close to it."""
    x, y = goals.removal.metric, goals.retention.metric
    _scale_x(axes, points[x].tolist(), goals.removal)
    for floor in _list_floors(points, goals, rule):
        label = f"{rule.share if rule else 0:.0%} of the original's {goals.retention.short}"
        axes.axhline(floor, color=GREY, linestyle="--", linewidth=0.8, label=label, zorder=1)
    if "front" in points and any(points["front"]):
        _draw_front(axes, points.loc[points["front"]], goals)
    trials = points.loc[points["kind"] == "trial"]
    for (method, rectifier), cloud in trials.groupby(["method", "rectifier"], sort=False):
        style = marker_style(str(method), str(rectifier)) | TRIAL
        axes.plot(cloud[x], cloud[y], **style, rasterized=len(trials) > CROWD, zorder=3)
    _draw_methods(axes, points.loc[points["kind"].isin(["chosen", "reference"])], goals)


def _draw_methods(axes: Axes, rows: pd.DataFrame, goals: Goals) -> None:
    """Draw reference models as stars, chosen settings as markers, and arrows from each method to itself with GRU."""
    x, y = goals.removal.metric, goals.retention.metric
    for row in rows.to_dict("records"):
        if row["method"] in REFERENCES:
            face = "black" if row["method"] == "original" else "white"
            style: dict[str, Any] = {"marker": "*", "linestyle": "none", "color": "black", "markerfacecolor": face}
            axes.plot(row[x], row[y], **style, ms=13, label=LINES[row["method"]]["label"], zorder=2.5)
            continue
        axes.plot(row[x], row[y], **(solid_style(row["method"], row["rectifier"]) | CHOSEN), zorder=6)
        bars: dict[str, Any] = {"xerr": row.get(f"{x}_sd"), "yerr": row.get(f"{y}_sd")}
        ecolor = method_colour(row["method"])
        axes.errorbar(row[x], row[y], **bars, fmt="none", ecolor=ecolor, elinewidth=0.7, zorder=4)
    for method, pair in rows.groupby("method"):
        ends = {row["rectifier"]: (row[x], row[y]) for row in pair.to_dict("records")}
        if {"none", "gru"} <= set(ends) and ends["none"] != ends["gru"]:
            style = {"arrowstyle": "-|>", "color": method_colour(str(method)), "linestyle": line_style(str(method))}
            style |= {"linewidth": 1.2, "shrinkA": 0, "shrinkB": 3.5}
            axes.annotate("", ends["gru"], ends["none"], arrowprops=style, zorder=5)


def _draw_front(axes: Axes, front: pd.DataFrame, goals: Goals) -> None:
    """Draw the step line, carried on to the panel's left and lower edge: all below it is beaten by a setting's mean."""
    points = front.sort_values(goals.removal.metric, ascending=goals.removal.best == "highest")
    removal, kept = points[goals.removal.metric], points[goals.retention.metric]
    x = [axes.get_xlim()[0], *removal, removal.iloc[-1]]
    y = [kept.iloc[0], *kept, axes.get_ylim()[0]]
    front_line: dict[str, Any] = {"drawstyle": "steps-pre", "linewidth": 1.0, "label": "Pareto front of all settings"}
    axes.plot(x, y, color=FRONT["color"], **front_line, zorder=2)
    axes.plot(removal, kept, **FRONT, linestyle="none", zorder=2)


def _list_floors(points: pd.DataFrame, goals: Goals, rule: Selection | None) -> list[float]:
    """Return the utilities that the rule asks for, one for each original model."""
    originals = points.loc[(points["kind"] == "reference") & (points["method"] == "original"), goals.retention.metric]
    return [rule.share * utility for utility in originals] if rule and rule.rule == "utility_floor" else []


def _scale_x(axes: Axes, values: list[float], goal: Goal) -> None:
    """Put the better end right, FQ up to 0, its best; a model at the end is drawn whole."""
    low, high = min(values), max([*values, *[0.0] * (goal.metric == QUALITY)])
    margin = 0.06 * ((high - low) or 1.0)
    left, right = low - margin, high + margin
    axes.set_xlim((left, right) if goal.best == "highest" else (right, left))
    if goal.metric == QUALITY:
        axes.axvline(SIGNIFICANT, color=GREY, linestyle=":", linewidth=0.8, label="p = 0.05", zorder=1)
    if goal.chance is not None:
        axes.axvline(goal.chance, **CHANCE, zorder=1)


def _y_limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper end: from 0 on, unless all values are far from it."""
    low, high = min(values), max([*values, 0.1])
    low = 0.0 if low < high / 3 else low
    margin = 0.06 * ((high - low) or high)
    return low - margin, high + margin
