"""The trade-off: removal against retention, on TOFU FQ against MU. With all trials, or arrows of the methods alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation, Transform

from analysis.figures import panel_data
from analysis.figures.style import (
    CHANCE,
    GREY,
    SIGNIFICANT,
    STYLE,
    add_method_legend,
    colour,
    dashes,
    legend_entry,
    make_grid,
    marker,
    opaque,
    rectifier_entries,
    rectifier_look,
)
from analysis.labels import REFERENCES, join_names, order_rectifiers, split_label
from analysis.load.goal_columns import BETTER, Goals, find_goals, full_title
from analysis.load.trials import evaluated
from analysis.stats.chosen_settings import DEFAULT, SHORT, pareto
from analysis.stats.sweep_results import Results
from trainables.benchmarks import Goal
from trainables.config.settings import Selection

COLUMNS = ["kind", "split", "method", "rectifier", "gamma", "tau", "strength", "seed", "n", "id"]
ARROW_KEY = ["source", "benchmark", "backbone", "split", "method", "rectifier"]
QUALITY = "forget_quality"
FRONT: dict[str, Any] = {"color": "#999999", "marker": "s", "ms": 2.5}
GREY_MARKER: dict[str, Any] = {"color": GREY, "marker": "o", "linestyle": "none", "ms": 6, "mew": 1.5}
FAINT_MARKER: dict[str, Any] = {"ms": 4.5, "mew": 0.9, "alpha": 0.5}
"""How the paper's numbers look beside those of runs."""
NEAR, SIDEWAYS = 0.03, 9.0
"""The share of a panel within which points count as one place, and by how many points arrows there stand apart."""
CROWD = 1500
"""More faint trials in a panel than that are an image inside the figure: as shapes they would be most of its file."""


def trial_points(results: Results) -> pd.DataFrame:
    """Return the points of `draw_trials`: trials, settings' means over seeds, the chosen ones, reference models.

    `front` marks the settings (kind `setting`, those of `measure_hypervolume`) of a split that no other beats, without
    those no better than the original model on either goal. Points without removal or retention are left out.
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
    return points.assign(front=points.index.isin(_find_front(points, goals)))


def _find_front(points: pd.DataFrame, goals: Goals) -> list[Hashable]:
    """Return the places of the settings that are on their split's front."""
    x, y = (goal.gain(1) * points[goal.metric].astype(float) for goal in (goals.removal, goals.retention))
    gains = points[["kind", "split", "method"]].assign(x=x, y=y)
    originals = gains.loc[(gains["kind"] == "reference") & (gains["method"] == "original")].set_index("split")
    settings = gains.loc[gains["kind"] == "setting"]
    models = originals[["x", "y"]].reindex(settings["split"]).to_numpy()  # NaN where unknown: not beaten
    beaten = (settings[["x", "y"]].to_numpy() <= models).all(axis=1)
    return [place for _, group in settings.loc[~beaten].groupby("split") for place in pareto(group, "x", "y").index]


def arrow_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each panel, method and rectifier that the rule chose: removal and retention (TOFU: FQ, MU).

    Removal by several goals is their mean, in the column `removal`. The reference models are methods of these names.
    """
    rows = panel_data.add_source(frame)
    goals = find_goals(rows["benchmark"].iloc[0])
    rows = rows.loc[rows["chosen"] & rows["target"].isna()]
    wide = rows.pivot_table(index=ARROW_KEY, columns="metric", values="value", sort=False).reset_index()
    if len(goals.removals) > 1:
        wide["removal"] = wide.reindex(columns=[goal.metric for goal in goals.removals]).mean(axis=1, skipna=False)
    both = [goals.removal.metric, goals.retention.metric]
    found = wide.reindex(columns=[*ARROW_KEY, *both]).dropna(subset=both).rename_axis(columns=None)
    found["with"] = found["rectifier"].map(order_rectifiers(found["rectifier"]).index)
    return panel_data.sort_points(found, by=["with"]).drop(columns="with")


@mpl.rc_context(STYLE)
def draw_trials(points: pd.DataFrame, goals: Goals, rule: Selection = DEFAULT) -> Figure:
    """Draw `trial_points`, one panel for each split: better to the right and upwards; sized for print at 8 pt."""
    splits = sorted(points["split"].unique())
    columns = max(1, min(len(splits), 3))
    rows = max(1, -(-len(splits) // columns))
    size = (min(max(4.8, 3.4 * columns), 7.4), 2.6 * rows + 1.1 if splits else 0.5)
    figure = Figure(figsize=size, layout="constrained")
    panels, labels = make_grid(figure, len(splits), columns, sharey=True), _axis_labels(goals)
    if splits:
        panels[0].set_ylim(_y_limits([*points[goals.retention.metric], *_list_floors(points, goals, rule)]))
    else:
        panels[0].set_title(f"no trial with {join_names(goal.short for goal in goals.compared)}")
        panels[0].set_axis_off()
    for axes, split in zip(panels, splits, strict=False):
        _draw_trials(axes, points.loc[points["split"] == split], goals, rule)
        axes.set_title(split_label(split))
        axes.set_xlabel(labels[0])
    for axes in panels[::columns]:
        axes.set_ylabel(labels[1])
    add_method_legend(figure, panel_data.list_methods(points.loc[points["kind"] != "reference"]))
    if signs := list(_list_legend_entries(points, goals, rule)):
        figure.legend(handles=signs, loc="outside lower center", ncols=2 if size[0] < 6 else 4)
    return figure


def _draw_trials(axes: Axes, points: pd.DataFrame, goals: Goals, rule: Selection) -> None:
    """Draw one split, from the background to the front: a model's star never covers a method that is close to it."""
    kinds = {kind: points.loc[points["kind"] == kind] for kind in ("trial", "chosen", "reference")}
    x, y = goals.removal.metric, goals.retention.metric
    _scale_x(axes, points[x].tolist(), goals.removal)
    for floor in _list_floors(kinds["reference"], goals, rule):
        axes.axhline(floor, color=GREY, linestyle="--", linewidth=0.8, zorder=1)
    _draw_front(axes, points.loc[points["front"]], goals)
    faint = len(kinds["trial"]) > CROWD
    for (method, rectifier), cloud in kinds["trial"].groupby(["method", "rectifier"], sort=False):
        style = marker(str(method), str(rectifier)) | {"ms": 4, "alpha": 0.5, "rasterized": faint}
        axes.plot(cloud[x], cloud[y], **style, zorder=3)
    places = _place_side_by_side(axes, kinds["chosen"], goals)
    for row in kinds["chosen"].to_dict("records"):
        bars = [None if pd.isna(sd) or sd == 0 else sd for sd in (row[f"{x}_sd"], row[f"{y}_sd"])]
        style = {"fmt": "none", "ecolor": colour(row["method"]), "elinewidth": 0.7, "zorder": 4}
        style["transform"] = places[row["method"]]
        axes.errorbar(row[x], row[y], xerr=bars[0], yerr=bars[1], **style)
    _draw_methods(axes, pd.concat([kinds["reference"], kinds["chosen"]]), goals)


def _draw_methods(axes: Axes, rows: pd.DataFrame, goals: Goals, faint: bool = False) -> None:
    """Draw reference models as stars, chosen settings as markers, and arrows from each method to itself with GRU."""
    x, y = goals.removal.metric, goals.retention.metric
    places = _place_side_by_side(axes, rows, goals)
    for row in rows.to_dict("records"):
        if row["method"] in REFERENCES:
            style = star(row["method"], 8) | {"alpha": 0.45} if faint else star(row["method"])
            axes.plot(row[x], row[y], **style, zorder=2.5)
        else:
            style = opaque(row["method"], row["rectifier"])
            style |= FAINT_MARKER if faint else {"ms": 7, "mew": 1.5}
            axes.plot(row[x], row[y], **style, transform=places[row["method"]], zorder=3 if faint else 6)
    for method, pair in rows.groupby("method"):
        ends = {row["rectifier"]: (row[x], row[y]) for row in pair.to_dict("records")}
        if {"none", "gru"} <= set(ends) and ends["none"] != ends["gru"]:
            style: dict[str, Any] = {"arrowstyle": "-|>", "color": colour(str(method)), "shrinkB": 3.5}
            style |= {"linestyle": dashes(str(method)), "linewidth": 1.2, "shrinkA": 0}
            style |= {"alpha": 0.45, "linewidth": 0.8, "shrinkA": 3.5} if faint else {}
            at = places[str(method)]
            axes.annotate("", ends["gru"], ends["none"], at, at, arrowprops=style, zorder=2.8 if faint else 5)


def _place_side_by_side(axes: Axes, rows: pd.DataFrame, goals: Goals) -> dict[str, Transform]:
    """Return each method's coordinates: upright arrows that would lie on one another move to the worse side, in points.

    On MUSE most methods remove all there is to remove, alone and with GRU.
    """
    x, y = goals.removal.metric, goals.retention.metric
    width, height = (NEAR * abs(high - low) for low, high in (axes.get_xlim(), axes.get_ylim()))
    methods = rows.loc[~rows["method"].isin(REFERENCES)].groupby("method", sort=False)
    boxes = {str(name): (*pair[x].agg(["min", "max"]), *pair[y].agg(["min", "max"])) for name, pair in methods}
    shifts: dict[str, int] = {}
    for name, (left, right, low, high) in boxes.items():
        near = {
            shift
            for other, shift in shifts.items()
            if max(right, boxes[other][1]) - min(left, boxes[other][0]) < width
            and low - height < boxes[other][3]
            and boxes[other][2] < high + height
        }
        shifts[name] = next(shift for shift in range(len(boxes)) if shift not in near)
    inch = axes.figure.dpi_scale_trans
    return {name: axes.transData + ScaledTranslation(-SIDEWAYS * shift / 72, 0, inch) for name, shift in shifts.items()}


def _draw_front(axes: Axes, front: pd.DataFrame, goals: Goals) -> None:
    """Draw the step line, carried on to the panel's left and lower edge: all below it is beaten by a setting's mean."""
    if front.empty:
        return
    points = front.sort_values(goals.removal.metric, ascending=goals.removal.best == "highest")
    removal, kept = points[goals.removal.metric], points[goals.retention.metric]
    x = [axes.get_xlim()[0], *removal, removal.iloc[-1]]
    y = [kept.iloc[0], *kept, axes.get_ylim()[0]]
    axes.plot(x, y, drawstyle="steps-pre", color=FRONT["color"], linewidth=1.0, zorder=2)
    axes.plot(removal, kept, **FRONT, linestyle="none", zorder=2)


@mpl.rc_context(STYLE)
def draw_arrows(points: pd.DataFrame) -> Figure:
    """Draw `arrow_points`, one panel for each backbone and split; beside arrows of runs the paper's are faint."""
    goals = find_goals(points["benchmark"].iloc[0])
    places, labels = panel_data.list_places(points), _axis_labels(goals)
    columns = 2 if len(places) > 1 else 1
    height = 2.5 * -(-len(places) // columns) + 1.0
    figure = Figure(figsize=(max(4.8, 3.4 * columns), height), layout="constrained")
    for number, (axes, place) in enumerate(zip(make_grid(figure, len(places), columns), places, strict=True)):
        here = panel_data.at_place(points, place)
        _scale_x(axes, here[goals.removal.metric].tolist(), goals.removal)
        axes.set_ylim(_y_limits(here[goals.retention.metric].tolist()))
        for source in ("paper", "runs"):
            faint = source == "paper" and "runs" in set(here["source"])
            _draw_methods(axes, here.loc[here["source"] == source], goals, faint)
        axes.set_title(panel_data.place_title(place))
        axes.set_xlabel(labels[0] if number + columns >= len(places) else "")
        axes.set_ylabel(labels[1] if number % columns == 0 else "")
    add_method_legend(figure, panel_data.list_methods(points))
    signs = rectifier_entries(points.loc[~points["method"].isin(REFERENCES), "rectifier"], _chosen_sign)
    signs += [*_list_model_signs(set(points["method"])), *_list_chance(goals)]
    if panel_data.has_both_sources(points):
        signs.append(legend_entry("small and faint: the paper", **(GREY_MARKER | FAINT_MARKER)))
    figure.legend(handles=[*signs, *_list_significance(goals)], loc="outside lower center", ncols=3)
    return figure


def _axis_labels(goals: Goals) -> tuple[str, str]:
    """Return the labels of an axis of removal and one of retention, drawn with the better end right and on top."""
    x, y = goals.removal, goals.retention
    return f"{full_title(x)}, {BETTER[x.best]}", f"{full_title(y)}\n({BETTER[y.best]})"


def _list_floors(points: pd.DataFrame, goals: Goals, rule: Selection) -> list[float]:
    """Return the utilities that the rule asks for, one for each original model."""
    originals = points.loc[(points["kind"] == "reference") & (points["method"] == "original"), goals.retention.metric]
    return [rule.share * utility for utility in originals] if rule.rule == "utility_floor" else []


def _scale_x(axes: Axes, values: list[float], goal: Goal) -> None:
    """Put the better end right, FQ up to 0, its best; a model at the end is drawn whole."""
    low, high = min(values), max([*values, *[0.0] * (goal.metric == QUALITY)])
    margin = 0.06 * ((high - low) or 1.0)
    left, right = low - margin, high + margin
    axes.set_xlim((left, right) if goal.best == "highest" else (right, left))
    if goal.metric == QUALITY:
        axes.axvline(SIGNIFICANT, color=GREY, linestyle=":", linewidth=0.8, zorder=1)
    if goal.chance is not None:
        axes.axvline(goal.chance, **CHANCE, zorder=1)


def _y_limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper end: from 0 on, unless all values are far from it."""
    low, high = min(values), max([*values, 0.1])
    low = 0.0 if low < high / 3 else low
    margin = 0.06 * ((high - low) or high)
    return low - margin, high + margin


def star(role: str, size: float = 13) -> dict[str, Any]:
    """Return keywords for a reference model's sign."""
    face = "black" if role == "original" else "white"
    return {"marker": "*", "ms": size, "linestyle": "none", "markeredgecolor": "black", "markerfacecolor": face}


def _chosen_sign(rectifier: str) -> dict[str, Any]:
    return GREY_MARKER | {"fillstyle": rectifier_look(rectifier).fill}


def _list_model_signs(methods: set[str]) -> list[Line2D]:
    return [legend_entry(f"{role} model", **star(role, 9)) for role in REFERENCES if role in methods]


def _list_significance(goals: Goals) -> list[Line2D]:
    line: dict[str, Any] = {"color": GREY, "linestyle": ":", "linewidth": 0.8}
    return [legend_entry("p = 0.05", **line)] if goals.removal.metric == QUALITY else []


def _list_chance(goals: Goals) -> list[Line2D]:
    return [legend_entry("chance", **CHANCE)] if goals.removal.chance is not None else []


def _list_legend_entries(points: pd.DataFrame, goals: Goals, rule: Selection) -> Iterator[Line2D]:
    """Yield a legend entry for every kind of sign that is drawn with all trials."""
    kinds = dict(list(points.groupby("kind")))
    if "chosen" in kinds:
        yield from rectifier_entries(kinds["chosen"]["rectifier"], _chosen_sign, "{}, chosen setting", "method")
    if "trial" in kinds:
        yield legend_entry("every trial", color=GREY, marker="o", linestyle="none", ms=4, mfc="#BBBBBB")
    if any(points["front"]):
        yield legend_entry("Pareto front of all settings", **FRONT)
    if "reference" in kinds:
        yield from _list_model_signs(set(kinds["reference"]["method"]))
        if "original" in set(kinds["reference"]["method"]) and rule.rule == "utility_floor":
            label = f"{rule.share:.0%} of the original's {goals.retention.short}"
            yield legend_entry(label, color=GREY, linestyle="--", linewidth=0.8)
    if len(points):
        yield from [*_list_significance(goals), *_list_chance(goals)]
