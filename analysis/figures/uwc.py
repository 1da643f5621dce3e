"""UWC's curves: FQ and MU of theta(w) = w theta_u + (1 - w) theta_org over w, and FQ against MU along w."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import GREY, STYLE, colour, opaque, rectified
from analysis.stats.calibration import chosen_trials, curve, targets
from analysis.stats.selection import DEFAULT, STUDY, in_order
from analysis.tables.format import split_label
from analysis.tables.main import WITH, method_label
from trainables.config.settings import Selection

COLUMNS = ["kind", "split", "method", "rectifier", "seed", "id", "target", "goal", "reached", "monotone"]
COLUMNS += ["weight", "forget_quality", "model_utility"]
NAMES = {"benchmark.split": "split", "rectifier.name": "rectifier"}
WEIGHT = "w (0 original, 1 unlearned)"
QUALITY = "FQ, ln p (better →)"
UTILITY = "MU, 0 to 1 (better →)"
PLANES = (("weight", "forget_quality"), ("weight", "model_utility"), ("forget_quality", "model_utility"))
TITLES = {"weight": WEIGHT, "forget_quality": QUALITY, "model_utility": UTILITY}


def points(runs: pd.DataFrame, references: pd.DataFrame, rule: Selection = DEFAULT) -> pd.DataFrame:
    """Return every point that `draw` draws, of the trials behind the UWC table (each seed its own curve).

    kind `mixture`: a mixture that was evaluated; `target`: the one that was found for a target.
    """
    trials = chosen_trials(runs, references, rule)
    mixtures = curve(trials).assign(kind="mixture")
    found = targets(trials).assign(kind="target")
    drawn = pd.concat([mixtures, found]).merge(trials[["id", "seed", *STUDY]], on="id")
    order = in_order(drawn).rename(columns=NAMES).reindex(columns=COLUMNS)
    return order.dropna(subset=["model_utility"]).reset_index(drop=True)


def draw(drawn: pd.DataFrame, split: str) -> Figure:
    """Draw one split's `points`: a row of three panels a method, without (dashed, hollow) and with GRU (full)."""
    here = drawn.loc[drawn["split"] == split]
    methods = list(dict.fromkeys(here["method"]))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.4, 2.05 * len(methods) + 0.95), layout="constrained")
        figure.suptitle(f"{split_label(split)}: mixtures of the original and the unlearned model", fontsize=8)
        panels = figure.subplots(len(methods), len(PLANES), sharex="col", squeeze=False)
        for line, method in zip(panels, methods, strict=True):
            rows = here.loc[here["method"] == method]
            for axes, plane in zip(line, PLANES, strict=True):
                _panel(axes, rows, plane)
            line[0].set_title(method_label(method), loc="left", fontweight="bold")
        for axes, (x, _) in zip(panels[-1], PLANES, strict=True):
            axes.set_xlabel(TITLES[x])
        for column, (_, y) in enumerate(PLANES):
            for axes in panels[:, column]:
                axes.set_ylim(_limits(here[y]))
        figure.legend(handles=_signs(here), loc="outside lower center", ncols=5, handlelength=3.5)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, plane: tuple[str, str]) -> None:
    x, y = plane
    axes.set_ylabel(TITLES[y])
    if rows.dropna(subset=[x, y]).empty:
        axes.text(0.5, 0.5, "no FQ", transform=axes.transAxes, ha="center", color=GREY)
    if y == "model_utility":
        for goal in sorted(set(rows["goal"].dropna().round(6))):
            axes.axhline(goal, color=GREY, linestyle=":", linewidth=0.8, zorder=1)
    for _, group in rows.dropna(subset=[x, y]).groupby("id", sort=False):
        rectifier = group["rectifier"].iloc[0]
        mixtures = group.loc[group["kind"] == "mixture"].sort_values("weight")
        axes.plot(mixtures[x], mixtures[y], **_line(rows, rectifier), zorder=3)
        found = group.loc[group["kind"] == "target"]
        axes.plot(found[x], found[y], **opaque(rows["method"].iloc[0], rectifier), markersize=5.5, zorder=4)


def _limits(values: pd.Series) -> tuple[float, float] | None:
    """Return the limits of an axis, equal for all methods so that rows can be compared; None without a number."""
    low, high = values.min(), values.max()
    margin = 0.07 * max(high - low, 0.05)
    return None if pd.isna(low) else (low - margin, high + margin)


def _line(rows: pd.DataFrame, rectifier: str) -> dict[str, Any]:
    dots = {"marker": ".", "markersize": 3.5}
    return {"color": colour(rows["method"].iloc[0]), "linestyle": rectified(rectifier)[2], **dots}


def _signs(rows: pd.DataFrame) -> list[Line2D]:
    """Return a legend entry for every kind of line that is drawn."""
    shown = list(dict.fromkeys(rows["rectifier"]))
    handles = []
    for rectifier in sorted(shown, key=["none", *WITH, *shown].index):
        style: dict[str, Any] = {
            "color": GREY,
            "linestyle": rectified(rectifier)[2],
            "marker": "o",
            "markersize": 5.5,
        }
        style |= {"markerfacecolor": "white"} if rectifier == "none" else {}
        handles.append(Line2D([], [], **style, label=WITH.get(rectifier, "method alone")))
    dot: dict[str, Any] = {"color": GREY, "marker": ".", "markersize": 3.5, "linestyle": "none"}
    handles.append(Line2D([], [], **dot, label="evaluated mixture (large: a target's)"))
    shares = ", ".join(f"{share:.0%}" for share in sorted(rows["target"].dropna().unique()))
    handles.append(Line2D([], [], color=GREY, linestyle=":", linewidth=0.8, label=f"{shares} of the original's MU"))
    return handles
