"""UWC: FQ and MU of theta(w) = w theta_u + (1 - w) theta_org over w, and FQ over the share of MU that is kept."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from analysis.figures import panel_data
from analysis.figures.style import (
    GREY,
    LINES,
    STYLE,
    colour,
    draw_error_bars,
    even_columns,
    legend_entry,
    opaque,
    rectifier_entries,
    rectifier_look,
)
from analysis.labels import method_label, split_label
from analysis.stats import equal_utility
from analysis.stats.chosen_settings import SHORT, STUDY_COLUMNS, sort_studies
from analysis.stats.sweep_results import Results

COLUMNS = ["kind", "split", "method", "rectifier", "seed", "id", "target", "goal", "reached", "monotone"]
COLUMNS += ["weight", "forget_quality", "model_utility"]
SHARE_COLUMNS = ["source", "benchmark", "backbone", "split", "method", "rectifier", "target", "forget_quality"]
SHARE_COLUMNS += ["sd", "n"]
PLANES = (("weight", "forget_quality"), ("weight", "model_utility"), ("forget_quality", "model_utility"))
TITLES = {
    "weight": "w (0 original, 1 unlearned)",
    "forget_quality": "FQ, ln p (better →)",
    "model_utility": "MU, 0 to 1 (better →)",
}


def mixture_points(results: Results) -> pd.DataFrame:
    """Return the mixtures of the trials behind the UWC table (each seed its own curve).

    kind `mixture`: a mixture that was evaluated; `target`: the one that was found for a target.
    """
    trials = results.chosen_trials
    mixtures = equal_utility.curve(trials).assign(kind="mixture")
    found = equal_utility.targets(trials).assign(kind="target")
    points = pd.concat([mixtures, found]).merge(trials[["id", "seed", *STUDY_COLUMNS]], on="id")
    order = sort_studies(points).rename(columns=SHORT).reindex(columns=COLUMNS)
    return order.dropna(subset=["model_utility"]).reset_index(drop=True)


@mpl.rc_context(STYLE)
def draw_mixtures(points: pd.DataFrame, split: str) -> Figure:
    """Draw one split's `mixture_points`: three panels for each method, hollow without a rectifier, full with GRU."""
    here = points.loc[points["split"] == split]
    methods = list(dict.fromkeys(here["method"]))
    figure = Figure(figsize=(7.4, 2.05 * len(methods) + 0.95), layout="constrained")
    figure.suptitle(f"{split_label(split)}: mixtures of the original and the unlearned model", fontsize=8)
    grid = figure.subplots(len(methods), len(PLANES), sharex="col", sharey="col", squeeze=False)
    for line, method in zip(grid, methods, strict=True):
        for axes, plane in zip(line, PLANES, strict=True):
            _draw_plane(axes, here.loc[here["method"] == method], plane)
        line[0].set_title(method_label(method), loc="left", fontweight="bold")
    for axes, (x, _) in zip(grid[-1], PLANES, strict=True):
        axes.set_xlabel(TITLES[x])
    signs = rectifier_entries(here["rectifier"], lambda name: _curve_look("ga", name) | {"color": GREY, "marker": "o"})
    dot: dict[str, Any] = {"color": GREY, "marker": ".", "markersize": 3.5, "linestyle": "none"}
    signs.append(legend_entry("evaluated mixture (large: a target's)", **dot))
    shares = ", ".join(f"{share:.0%}" for share in sorted(here["target"].dropna().unique()))
    signs.append(legend_entry(f"{shares} of the original's MU", color=GREY, linestyle=":", linewidth=0.8))
    figure.legend(handles=signs, loc="outside lower center", ncols=even_columns(len(signs), 4), handlelength=3.5)
    return figure


def _draw_plane(axes: Axes, rows: pd.DataFrame, plane: tuple[str, str]) -> None:
    x, y = plane
    axes.set_ylabel(TITLES[y])
    if rows.dropna(subset=[x, y]).empty:
        axes.text(0.5, 0.5, "no FQ", transform=axes.transAxes, ha="center", color=GREY)
    if y == "model_utility":
        for goal in sorted(set(rows["goal"].dropna().round(6))):
            axes.axhline(goal, color=GREY, linestyle=":", linewidth=0.8, zorder=1)
    for _, group in rows.dropna(subset=[x, y]).groupby("id", sort=False):
        method, rectifier = group.iloc[0][["method", "rectifier"]]
        line: dict[str, Any] = {"color": colour(method), "linestyle": rectifier_look(rectifier).dashes}
        mixtures = group.loc[group["kind"] == "mixture"].sort_values("weight")
        axes.plot(mixtures[x], mixtures[y], **line, marker=".", markersize=3.5, zorder=3)
        found = group.loc[group["kind"] == "target"]
        axes.plot(found[x], found[y], **opaque(method, rectifier), markersize=5.5, zorder=4)


def share_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each method, rectifier and target of the chosen settings; the original model has no target."""
    rows = panel_data.add_source(frame)
    calibrated = rows["target"].notna() & rows["chosen"]
    models = (rows["method"] == "original") & rows["split"].isin(rows.loc[calibrated, "split"])
    rows = rows.loc[(calibrated | models) & (rows["metric"] == "forget_quality") & rows["value"].notna()]
    rows = rows.rename(columns={"value": "forget_quality"}).drop_duplicates([*SHARE_COLUMNS[:7]])
    return panel_data.sort_points(rows, by=["rectifier", "target"]).reindex(columns=SHARE_COLUMNS)


@mpl.rc_context(STYLE)
def draw_shares(points: pd.DataFrame) -> Figure:
    """Draw `share_points`: methods in rows, backbones and splits in columns; alone dashed, w/ GRU full."""
    places, methods = panel_data.list_places(points), panel_data.list_methods(points)
    size = (min(7.4, max(4.0, 0.6 + 2.8 * len(places))), 1.7 * len(methods) + 0.95)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(methods), len(places), sharex=True, sharey="col", squeeze=False)
    for panels, place in zip(grid.T, places, strict=True):
        here = panel_data.at_place(points, place)
        for axes, method in zip(panels, methods, strict=True):
            _draw_shares(axes, here.loc[here["method"].isin([method, "original"])])
            axes.set_title(f"{method_label(method)}: {panel_data.place_title(place)}")
        panels[-1].set_xlabel("share of the original's MU that is kept")
    for axes in grid[:, 0]:
        axes.set_ylabel("FQ ↑")
    grid[0, 0].set_xticks(sorted(points["target"].dropna().unique()))
    grid[0, 0].xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    grey: dict[str, Any] = {"color": GREY, "marker": "o"}
    mixed = points.loc[points["target"].notna(), "rectifier"]
    signs = rectifier_entries(mixed, lambda name: _curve_look("ga", name) | grey)
    if "original" in set(points["method"]):
        signs.append(legend_entry("original model", **LINES["original"]))
    if panel_data.has_both_sources(points):
        signs.append(legend_entry("small and faint: the paper", **(_curve_look("ga", "gru", faint=True) | grey)))
    figure.legend(handles=signs, loc="outside lower center", ncols=2 if size[0] < 5 else 4)
    return figure


def _draw_shares(axes: Axes, rows: pd.DataFrame) -> None:
    both = "runs" in set(rows["source"])
    for _, curve in rows.groupby(["source", "method", "rectifier"]):
        source, method, rectifier = map(str, curve.iloc[0][["source", "method", "rectifier"]])
        faint = both and source == "paper"
        if method == "original":
            if not faint:
                axes.axhline(curve["forget_quality"].iloc[0], **LINES["original"], zorder=1)
            continue
        look = _curve_look(method, rectifier, faint)
        axes.plot(curve["target"], curve["forget_quality"], **look)
        if source == "runs":
            draw_error_bars(axes, curve["target"], curve, "forget_quality", look)


def _curve_look(method: str, rectifier: str, faint: bool = False) -> dict[str, Any]:
    """Return keywords for a curve: of the paper small and faint where there are those of runs too."""
    look = opaque(method, rectifier) | {"linestyle": rectifier_look(rectifier).dashes, "markersize": 5}
    return look | ({"alpha": 0.45, "markersize": 3.5, "linewidth": 0.7} if faint else {})
