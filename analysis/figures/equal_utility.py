"""UWC: FQ and MU of theta(w) = w theta_u + (1 - w) theta_org over w, and FQ against MU."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import GREY, STYLE, add_legend, make_panels, rectifier_look
from analysis.labels import method_label, rectifier_label, split_label
from analysis.load.goal_columns import TOFU
from analysis.stats import equal_utility
from analysis.stats.chosen_settings import SHORT, STUDY_COLUMNS, sort_studies
from analysis.stats.sweep_results import Results

COLUMNS = ["kind", "split", "method", "rectifier", "seed", "id", "target", "goal", "reached", "monotone"]
COLUMNS += ["weight", "forget_quality", "model_utility"]
PLANES = (("weight", "forget_quality"), ("weight", "model_utility"), ("forget_quality", "model_utility"))
TITLES = {"weight": "w (0 original, 1 unlearned)"} | {column.metric: column.head for column in TOFU.columns}


def mixture_points(results: Results) -> pd.DataFrame:
    """Return the mixtures of the trials behind the UWC table (each seed its own curve).

    kind `mixture`: a mixture that was evaluated; `target`: the one that was found for a target.
    """
    trials = results.chosen_trials
    mixtures = equal_utility.list_mixtures(trials, "evaluations").assign(kind="mixture")
    found = equal_utility.list_mixtures(trials, "targets").assign(kind="target")
    points = pd.concat([mixtures, found]).merge(trials[["id", "seed", *STUDY_COLUMNS]], on="id")
    order = sort_studies(points).rename(columns=SHORT).reindex(columns=COLUMNS)
    return order.dropna(subset=["model_utility"]).reset_index(drop=True)


@mpl.rc_context(STYLE)
def draw(points: pd.DataFrame) -> Figure:
    """Draw one split's `mixture_points`: three panels for each method, its lines by what it is combined with."""
    methods = list(dict.fromkeys(points["method"]))
    figure, grid = make_panels(len(methods), len(PLANES), 2.4, 2.05, sharex="col", sharey="col")
    figure.suptitle(
        f"{split_label(str(points['split'].iloc[0]))}: mixtures of the original and the unlearned model", fontsize=8
    )
    for line, method in zip(grid, methods, strict=True):
        for axes, plane in zip(line, PLANES, strict=True):
            _draw_plane(axes, points.loc[points["method"] == method], plane)
            axes.set_title(method_label(method), loc="left", fontweight="bold")
    for axes, (x, _) in zip(grid[-1], PLANES, strict=True):
        axes.set_xlabel(TITLES[x])
    add_legend(figure)
    return figure


def _draw_plane(axes: Axes, rows: pd.DataFrame, plane: tuple[str, str]) -> None:
    x, y = plane
    axes.set_ylabel(TITLES[y])
    if rows.dropna(subset=[x, y]).empty:
        axes.text(0.5, 0.5, "no FQ", transform=axes.transAxes, ha="center", color=GREY)
    if y == "model_utility":
        shares = ", ".join(f"{share:.0%}" for share in sorted(rows["target"].dropna().unique()))
        for goal in sorted(set(rows["goal"].dropna().round(6))):
            dots: dict[str, Any] = {"linestyle": ":", "linewidth": 0.8, "label": f"{shares} of the original's MU"}
            axes.axhline(goal, color=GREY, **dots, zorder=1)
    for _, group in rows.dropna(subset=[x, y]).groupby("id", sort=False):
        rectifier = str(group["rectifier"].iloc[0])
        look = rectifier_look(rectifier)
        line: dict[str, Any] = {"color": look.colour, "label": rectifier_label(rectifier, "method alone")}
        mixtures = group.loc[group["kind"] == "mixture"].sort_values("weight")
        axes.plot(mixtures[x], mixtures[y], **line, linestyle=look.dashes, marker=".", markersize=3.5, zorder=3)
        found = group.loc[group["kind"] == "target"]
        line |= {"label": "mixture at a target", "linestyle": "none", "marker": "o", "markerfacecolor": "white"}
        axes.plot(found[x], found[y], **line, markersize=5.5, zorder=4)
