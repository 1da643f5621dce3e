"""What a task vector's strength does: FQ and MU over stg (TRU) and strength (TV), and over the distance moved."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, Locator, LogLocator, NullLocator, StrMethodFormatter

from analysis.figures.style import FRAMED, LINES, STYLE, opaque
from analysis.runs import STRENGTHS, settings
from analysis.stats.selection import DEFAULT, STUDY, average, choose
from analysis.tables.format import DECIMALS, split_label
from analysis.tables.main import METRICS, TASK_VECTORS, method_label
from trainables.config.settings import Selection

COLUMNS = ["kind", "split", "method", "settings", "strength", "relative_change", "n", "chosen", "id"]
COLUMNS += ["forget_quality", "forget_quality_sd", "model_utility", "model_utility_sd"]
AXES = {"forget_quality": "FQ, ln p\n(better →)", "model_utility": "MU, 0 to 1\n(better →)"}
KNOBS = {"tru": "stg, in mean unit vectors", "tv": "strength, in task vectors"}
CHANGE = r"$\|\theta - \theta_\mathrm{org}\|\; /\; \|\theta_\mathrm{org}\|$, %"
DASHES = ["-", "--", "-.", ":"]
WIDE = 10.0
APART = 0.09
"""Strengths this many times apart are on a logarithmic axis; ticks are at least this share of the axis apart."""


def points(runs: pd.DataFrame, references: pd.DataFrame, rule: Selection = DEFAULT) -> pd.DataFrame:
    """Return every point that `draw` draws: means over seeds at each strength of TRU and TV, and the reference models.

    `settings` names what else differs among a method's trials: one curve for each text. `chosen`: by the report's rule.
    """
    vectors = runs.loc[runs["method"].isin(TASK_VECTORS)]
    means = average(vectors).dropna(subset=["strength"])
    means = means.assign(kind="strength", settings=_told(vectors, means), split=means[STUDY[0]])
    means["chosen"] = means["configuration"].isin(choose(vectors, references, rule)["configuration"])
    models = references.assign(kind="reference", method=references["role"], id=references["evaluation"], n=1)
    models = models.assign(chosen=False, settings="")
    parts = [part.reindex(columns=COLUMNS) for part in (means, models) if len(part)]
    found = pd.concat(parts) if parts else pd.DataFrame(columns=COLUMNS)
    return found.sort_values(["split", "kind", "method", "settings", "strength"], ignore_index=True)


def _told(runs: pd.DataFrame, means: pd.DataFrame) -> list[str]:
    """Return what tells each row from others of its study besides the strength: `lr=0.01, steps=5`, or nothing."""
    table = settings(runs).reindex(means["configuration"]).map(str)
    other = [column for column in table if column not in {*STUDY, *STRENGTHS}]
    texts = pd.Series("", index=means.index)
    for _, study in means.groupby(STUDY):
        rows = table.loc[study["configuration"], other]
        differ = [column for column in other if rows[column].nunique() > 1]
        for place, (_, row) in zip(study.index, rows.iterrows(), strict=True):
            texts[place] = ", ".join(f"{column.removeprefix('task_vector.')}={row[column]}" for column in differ)
    return texts.tolist()


def at_equal_quality(drawn: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return the MU of TRU and of TV (columns tru, tv) at every measured FQ above the original's that both reach.

    A method's curve is that of its chosen strength's other settings: straight lines between strengths, from the
    original model on. Where a curve passes an FQ several times the highest MU counts.
    """
    here = drawn.loc[drawn["split"] == split].dropna(subset=list(METRICS))
    start = here.loc[(here["kind"] == "reference") & (here["method"] == "original"), list(METRICS)]
    curves = {}
    for method in TASK_VECTORS:
        rows = here.loc[(here["kind"] == "strength") & (here["method"] == method)]
        rows = rows.loc[rows["settings"].isin(rows.loc[rows["chosen"], "settings"])]
        if rows.empty:
            return pd.DataFrame(columns=["forget_quality", *TASK_VECTORS])
        curves[method] = pd.concat([start, rows[list(METRICS)]]).to_numpy(dtype=float).tolist()
    top = min(max(quality for quality, _ in curve) for curve in curves.values())
    bottom = max(min(quality for quality, _ in curve) for curve in curves.values())
    floor = max([bottom, *start["forget_quality"]])
    levels = sorted({quality for curve in curves.values() for quality, _ in curve if floor < quality <= top})
    rows = [{"forget_quality": q, **{method: _height(curve, q) for method, curve in curves.items()}} for q in levels]
    return pd.DataFrame(rows, columns=["forget_quality", *TASK_VECTORS]).round(dict.fromkeys(TASK_VECTORS, DECIMALS))


def _height(curve: list[list[float]], quality: float) -> float:
    """Return the highest MU at which the lines between a curve's points pass an FQ within its range."""
    heights = [utility for found, utility in curve if found == quality]
    for (left, low), (right, high) in pairwise(curve):
        if min(left, right) < quality < max(left, right):
            heights.append(low + (high - low) * (quality - left) / (right - left))
    return max(heights)


def draw(drawn: pd.DataFrame) -> Figure:
    """Draw `points`: FQ above MU for every split, over the strength of each method and over the relative change."""
    strengths = drawn.loc[drawn["kind"] == "strength"]
    splits = sorted(strengths["split"].unique())
    methods = [method for method in TASK_VECTORS if method in set(strengths["method"])]
    knobs = [*methods, *["relative_change"] * bool(strengths["relative_change"].notna().any())]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(1.0 + 2.13 * len(knobs), 3.2 * len(splits) + 0.6), layout="constrained")
        for part, split in zip(figure.subfigures(len(splits), 1, squeeze=False).flatten(), splits, strict=True):
            part.suptitle(split_label(split), fontsize=8, fontweight="bold")
            panels = part.subplots(2, len(knobs), sharex="col", sharey="row", squeeze=False)
            rows = drawn.loc[drawn["split"] == split]
            for line, metric in zip(panels, METRICS, strict=True):
                for axes, knob in zip(line, knobs, strict=True):
                    _panel(axes, rows, knob, metric)
                line[0].set_ylabel(AXES[metric])
            for axes, knob in zip(panels[-1], knobs, strict=True):
                axes.set_xlabel(KNOBS.get(knob, CHANGE) + " (log axis)" * (axes.get_xscale() == "log"))
            for axes, knob in zip(panels[0], knobs, strict=True):
                axes.set_title(method_label(knob) if knob in methods else "both, by distance moved")
        figure.legend(handles=list(_signs(drawn)), loc="outside lower center", ncols=5, handlelength=3)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, knob: str, metric: str) -> None:
    """Draw one metric over one knob: a method's strength, or the relative change of all methods."""
    for model in rows.loc[rows["kind"] == "reference"].dropna(subset=[metric]).to_dict("records"):
        axes.axhline(model[metric], **LINES[model["method"]], zorder=1)
    strengths = rows.loc[rows["kind"] == "strength"].dropna(subset=[metric])
    if knob in KNOBS:
        strengths = strengths.loc[strengths["method"] == knob]
        _scale(axes, sorted(strengths["strength"].unique()))
    else:
        _spread(axes, 100 * strengths["relative_change"])
    for (method, told), curve in strengths.groupby(["method", "settings"]):
        x = curve["strength"] if knob in KNOBS else 100 * curve["relative_change"]
        look = opaque(str(method), "none")  # as in the trade-off: without GRU
        line = look | {"linestyle": _dashes(rows, str(method), str(told)), "markersize": 4.5}
        axes.errorbar(x, curve[metric], curve[f"{metric}_sd"].fillna(0), elinewidth=0.7, **line)
        axes.plot(x[curve["chosen"]], curve.loc[curve["chosen"], metric], **look, **FRAMED, zorder=5)


def _dashes(rows: pd.DataFrame, method: str, told: str) -> Any:
    """Return the line style of one of a method's curves, in the order of their settings."""
    texts = sorted(rows.loc[(rows["kind"] == "strength") & (rows["method"] == method), "settings"].unique())
    return DASHES[texts.index(told) % len(DASHES)]


def _scale(axes: Axes, strengths: list[float]) -> None:
    """Put ticks at the strengths that were run, without overlap, on a logarithmic axis where they differ widely."""
    if not strengths:
        return
    wide = strengths[-1] >= WIDE * strengths[0]
    axes.set_xscale("log" if wide else "linear")
    low, high = strengths[0], strengths[-1]
    place = math.log if wide else float
    kept: list[float] = []
    for value in strengths:
        if not kept or place(value) - place(kept[-1]) >= APART * (place(high) - place(low)):
            kept.append(value)
    _ticks(axes, FixedLocator(kept))


def _spread(axes: Axes, changes: pd.Series) -> None:
    """Put relative changes (in %) that differ widely on a logarithmic axis."""
    if 0 < WIDE * changes.min() <= changes.max():
        axes.set_xscale("log")
        _ticks(axes, LogLocator(subs=(1, 2, 5) if changes.max() < WIDE**2 * changes.min() else (1,)))


def _ticks(axes: Axes, locator: Locator) -> None:
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _signs(drawn: pd.DataFrame) -> Iterable[Line2D]:
    """Yield a legend entry for every curve and line that is drawn."""
    strengths = drawn.loc[drawn["kind"] == "strength"]
    for method, told in strengths[["method", "settings"]].drop_duplicates().sort_values(["method", "settings"]).values:
        style = opaque(method, "none") | {"linestyle": _dashes(drawn, method, told)}
        yield Line2D([], [], **style, label=f"{method_label(method)}{f' ({told})' if told else ''}")
    yield Line2D([], [], color="white", marker="o", linestyle="none", **FRAMED, label="chosen strength")
    for role in sorted(set(drawn.loc[drawn["kind"] == "reference", "method"])):
        yield Line2D([], [], **LINES[role], label=f"{role} model")
