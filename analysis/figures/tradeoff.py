"""The trade-off picture: removal against retention, on TOFU FQ against MU, a panel a split."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import (
    GREY,
    SIGN,
    SIGNIFICANT,
    STYLE,
    abreast,
    colour,
    dashes,
    marker,
    method_signs,
    opaque,
    rank,
    rectified,
)
from analysis.load import goals
from analysis.load.goals import Axis, Goals
from analysis.runs import evaluated
from analysis.stats.selection import DEFAULT, average, choose, pareto
from analysis.tables.format import split_label
from analysis.tables.main import WITH
from trainables.config.settings import Selection

COLUMNS = ["kind", "split", "method", "rectifier", "gamma", "tau", "strength", "seed", "n", "id"]
NAMES = {"benchmark.split": "split", "rectifier.name": "rectifier", "rectifier.gamma": "gamma", "rectifier.tau": "tau"}
QUALITY = "forget_quality"
TRIAL: dict[str, Any] = {"ms": 4, "alpha": 0.5}
FRONT: dict[str, Any] = {"color": "#999999", "marker": "s", "ms": 2.5}
CROWD = 1500
"""More faint trials in a panel than that are an image inside the figure: as shapes they would be most of its file."""


def tradeoff_points(runs: pd.DataFrame, references: pd.DataFrame, rule: Selection = DEFAULT) -> pd.DataFrame:
    """Return every point that `tradeoff` draws: trials, settings' means over seeds, the chosen ones, reference models.

    `front` marks the settings (kind `setting`, those of `hypervolume.table`) of a split that no other beats, without
    those no better than the original model on either goal. Points without removal or retention are left out.
    """
    what = goals.of(runs)
    metrics = dict.fromkeys([*what.metrics, what.x.column])
    columns = [*COLUMNS, *(f"{metric}{end}" for metric in metrics for end in ("", "_sd"))]
    trials = runs.loc[evaluated(runs)].rename(columns=NAMES).assign(kind="trial", n=1)
    means = average(runs).rename(columns=NAMES).assign(kind="setting")
    chosen = choose(runs, references, rule).rename(columns=NAMES).assign(kind="chosen")
    models = references.assign(kind="reference", method=references["role"], id=references["evaluation"], n=1)
    parts = [part.reindex(columns=columns) for part in (trials, means, chosen, models) if len(part)]
    points = pd.concat(parts) if parts else pd.DataFrame(columns=columns)
    points = points.dropna(subset=[what.x.column, what.y.column]).reset_index(drop=True)
    return points.assign(front=points.index.isin(_undominated(points, what)))


def _undominated(points: pd.DataFrame, what: Goals) -> list[Hashable]:
    """Return the places of the settings that are on their split's front."""
    gains = points[["kind", "split", "method"]].assign(
        x=what.x.gain(pd.Series(points[what.x.column], dtype=float)),
        y=what.y.gain(pd.Series(points[what.y.column], dtype=float)),
    )
    originals = gains.loc[(gains["kind"] == "reference") & (gains["method"] == "original")].set_index("split")
    settings = gains.loc[gains["kind"] == "setting"]
    beaten = pd.Series(True, index=settings.index)
    for axis in ("x", "y"):
        beaten &= settings[axis] <= settings["split"].map(originals[axis]).astype(float)  # unknown: not beaten
    return [place for _, group in settings.loc[~beaten].groupby("split") for place in pareto(group, "x", "y").index]


def tradeoff(points: pd.DataFrame, what: Goals, rule: Selection = DEFAULT) -> Figure:
    """Draw `tradeoff_points`: x removal, y retention, better to the right and upwards; sized for print at 8 pt."""
    splits = sorted(points["split"].unique())
    columns = max(1, min(len(splits), 3))
    rows = max(1, -(-len(splits) // columns))
    with mpl.rc_context(STYLE):
        size = (min(max(4.8, 3.4 * columns), 7.4), 2.6 * rows + 1.1 if splits else 0.5)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).flatten()
        if splits:
            panels[0].set_ylim(heights([*points[what.y.column], *_floors(points, what, rule)]))
        else:
            panels[0].set_title(f"no trial with {goals.listed(goal.short for goal in what.compared)}")
        for panel, split in zip(panels, splits, strict=False):
            _panel(panel, points.loc[points["split"] == split], split, what, rule)
        for panel in panels[len(splits) :]:
            panel.set_axis_off()
        for panel in panels[::columns]:
            panel.set_ylabel(f"{what.y.name}\n({what.y.better})")
        _legends(figure, points, what, rule)
    return figure


def _panel(axes: Axes, points: pd.DataFrame, split: str, what: Goals, rule: Selection) -> None:
    """Draw one split, from the background to the front: a model's star never covers a method that is close to it."""
    kinds = {kind: points.loc[points["kind"] == kind] for kind in ("trial", "chosen", "reference")}
    x, y = what.x.column, what.y.column
    axes.set_xlim(limits(points[x].tolist(), what.x))
    _guides(axes, kinds["reference"], what, rule)
    _front(axes, points.loc[points["front"]], what)
    for model in kinds["reference"].to_dict("records"):
        axes.plot(model[x], model[y], **star(model["method"]), zorder=2.5)
    raster = len(kinds["trial"]) > CROWD
    for (method, rectifier), cloud in kinds["trial"].groupby(["method", "rectifier"], sort=False):
        style = marker(str(method), str(rectifier)) | TRIAL | {"rasterized": raster}
        axes.plot(cloud[x], cloud[y], **style, zorder=3)
    _arrows(axes, kinds["chosen"], what)
    for row in kinds["chosen"].to_dict("records"):
        x_sd, y_sd = (_bar(row[f"{metric}_sd"]) for metric in (x, y))
        style: dict[str, Any] = {"fmt": "none", "ecolor": colour(row["method"]), "elinewidth": 0.7, "zorder": 4}
        axes.errorbar(row[x], row[y], xerr=x_sd, yerr=y_sd, **style)
        axes.plot(row[x], row[y], **bold(row["method"], row["rectifier"]), zorder=6)
    axes.set_title(split_label(split))
    axes.set_xlabel(f"{what.x.name}, {what.x.better}")


def _floors(points: pd.DataFrame, what: Goals, rule: Selection) -> list[float]:
    """Return the utilities that the rule asks for, one an original model."""
    originals = points.loc[(points["kind"] == "reference") & (points["method"] == "original"), what.y.column]
    return [rule.share * utility for utility in originals] if rule.rule == "utility_floor" else []


def limits(values: list[float], axis: Axis) -> tuple[float, float]:
    """Return the left and the right end, the better one right; FQ up to 0, its best."""
    low, high = min(values), max([*values, *[0.0] * (axis.column == QUALITY)])
    margin = 0.06 * ((high - low) or 1.0)  # a model at the end is drawn whole
    left, right = low - margin, high + margin
    return (left, right) if axis.best == "highest" else (right, left)


def heights(values: list[float]) -> tuple[float, float]:
    """Return the lower and the upper end: from 0 on, unless all values are far from it."""
    low, high = min(values), max([*values, 0.1])
    low = 0.0 if low < high / 3 else low
    margin = 0.06 * ((high - low) or high)
    return low - margin, high + margin


def _guides(axes: Axes, models: pd.DataFrame, what: Goals, rule: Selection) -> None:
    if what.x.column == QUALITY:
        axes.axvline(SIGNIFICANT, color=GREY, linestyle=":", linewidth=0.8, zorder=1)
    for floor in _floors(models, what, rule):
        axes.axhline(floor, color=GREY, linestyle="--", linewidth=0.8, zorder=1)


def _front(axes: Axes, front: pd.DataFrame, what: Goals) -> None:
    """Draw the step line, carried on to the panel's left and lower edge: all below it is beaten by a setting's mean."""
    if front.empty:
        return
    points = front.sort_values(what.x.column, ascending=what.x.best == "highest")
    removal, kept = points[what.x.column], points[what.y.column]
    x = [axes.get_xlim()[0], *removal, removal.iloc[-1]]
    y = [kept.iloc[0], *kept, axes.get_ylim()[0]]
    axes.plot(x, y, drawstyle="steps-pre", color=FRONT["color"], linewidth=1.0, zorder=2)
    axes.plot(removal, kept, **FRONT, linestyle="none", zorder=2)


def _arrows(axes: Axes, chosen: pd.DataFrame, what: Goals) -> None:
    """Draw an arrow from each method to itself with GRU."""
    for method, pair in chosen.groupby("method"):
        ends = {row["rectifier"]: (row[what.x.column], row[what.y.column]) for row in pair.to_dict("records")}
        if {"none", "gru"} <= set(ends) and ends["none"] != ends["gru"]:
            style = {"arrowstyle": "-|>", "color": colour(str(method)), "shrinkA": 0, "shrinkB": 3.5}
            style |= {"linestyle": dashes(str(method)), "linewidth": 1.2}
            axes.annotate("", ends["gru"], ends["none"], arrowprops=style, zorder=5)


def bold(method: str, rectifier: str) -> dict[str, Any]:
    """Return keywords for a chosen setting: larger than the trials."""
    return opaque(method, rectifier) | {"markersize": 7, "markeredgewidth": 1.5}


def star(role: str, size: float = 13) -> dict[str, Any]:
    face = "black" if role == "original" else "white"
    return {"marker": "*", "ms": size, "linestyle": "none", "markeredgecolor": "black", "markerfacecolor": face}


def _bar(sd: float) -> float | None:
    return None if pd.isna(sd) or sd == 0 else sd


def _legends(figure: Figure, points: pd.DataFrame, what: Goals, rule: Selection) -> None:
    """Put the methods above the panels and the signs below them, outside the data."""
    methods = sorted(set(points.loc[points["kind"] != "reference", "method"]), key=lambda name: (rank(name), name))
    if methods:
        wide = abreast(len(methods), 7 if figure.get_figwidth() > 6 else 4)
        figure.legend(handles=method_signs(methods), loc="outside upper center", ncols=wide, handlelength=SIGN)
    signs = list(_signs(points, what, rule))
    if signs:
        figure.legend(handles=signs, loc="outside lower center", ncols=2 if figure.get_figwidth() < 6 else 4)


def _signs(points: pd.DataFrame, what: Goals, rule: Selection) -> Iterable[Line2D]:
    """Yield a legend entry for every kind of sign that is drawn."""
    grey: dict[str, Any] = {"color": GREY, "marker": "o", "linestyle": "none"}
    for rectifier, label in {"none": "method", **WITH}.items():
        if any((points["kind"] == "chosen") & (points["rectifier"] == rectifier)):
            fill = rectified(rectifier)[0]
            yield Line2D([], [], **grey, ms=6, mew=1.5, fillstyle=fill, label=f"{label}, chosen setting")
    if any(points["kind"] == "trial"):
        yield Line2D([], [], **grey, ms=4, mfc="#BBBBBB", label="every trial")
    if any(points["front"]):
        yield Line2D([], [], **FRONT, label="Pareto front of all settings")
    roles = set(points.loc[points["kind"] == "reference", "method"])
    if "original" in roles:
        yield Line2D([], [], **star("original", 9), label="original model")
    if "retain" in roles:
        yield Line2D([], [], **star("retain", 9), label="retain model")
    if "original" in roles and rule.rule == "utility_floor":
        label = f"{rule.share:.0%} of the original's {what.retention.short}"
        yield Line2D([], [], color=GREY, linestyle="--", linewidth=0.8, label=label)
    if len(points) and what.x.column == QUALITY:
        yield Line2D([], [], color=GREY, linestyle=":", linewidth=0.8, label="p = 0.05")
