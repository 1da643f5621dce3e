"""The trade-off picture: forget quality against model utility, a panel a split."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.printing import split_label
from analysis.selection import SHARE, choose, pareto
from analysis.style import FILL, GREY, SIGNIFICANT, STYLE, colour, marker, rank
from analysis.tables import method_label

CHOSEN = {"none": "method, chosen trial", "clip": "w/ clip, chosen trial", "gru": "w/ GRU, chosen trial"}
COLUMNS = ["kind", "split", "method", "rectifier", "gamma", "tau", "strength", "seed", "n", "id", "forget_quality"]
COLUMNS += ["forget_quality_sd", "model_utility", "model_utility_sd", "front"]
NAMES = {"benchmark.split": "split", "rectifier.name": "rectifier", "rectifier.gamma": "gamma", "rectifier.tau": "tau"}


def tradeoff_points(runs: pd.DataFrame, references: pd.DataFrame) -> pd.DataFrame:
    """Return every point that `tradeoff` draws: trials, the chosen means over seeds, and the reference models.

    `front` marks the trials of a split that no other trial beats. Points without an FQ or an MU are left out.
    """
    trials = runs.loc[runs["status"] == "finished"].rename(columns=NAMES).assign(kind="trial", n=1)
    chosen = choose(runs, references).rename(columns=NAMES).assign(kind="chosen")
    models = references.assign(kind="reference", method=references["role"], id=references["evaluation"], n=1)
    parts = [part.reindex(columns=COLUMNS) for part in (trials, chosen, models) if len(part)]
    points = pd.concat(parts) if parts else pd.DataFrame(columns=COLUMNS)
    points = points.dropna(subset=["forget_quality", "model_utility"]).reset_index(drop=True)
    front = [
        place for _, group in points.loc[points["kind"] == "trial"].groupby("split") for place in pareto(group).index
    ]
    return points.assign(front=points.index.isin(front))


def tradeoff(points: pd.DataFrame) -> Figure:
    """Draw `tradeoff_points`: x FQ (ln p), y MU, both better when higher; sized for print at 8 pt."""
    splits = sorted(points["split"].unique())
    columns = max(1, min(len(splits), 3))
    rows = max(1, -(-len(splits) // columns))
    with mpl.rc_context(STYLE):
        size = (min(max(4.8, 3.4 * columns), 7.4), 2.6 * rows + 1.1 if splits else 0.5)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).flatten()
        if splits:
            top = max(*points["model_utility"], 0.1)
            panels[0].set_ylim(-0.06 * top, 1.06 * top)
        else:
            panels[0].set_title("no finished trial with both FQ and MU")
        for panel, split in zip(panels, splits, strict=False):
            _panel(panel, points.loc[points["split"] == split], split)
        for panel in panels[len(splits) :]:
            panel.set_axis_off()
        for panel in panels[::columns]:
            panel.set_ylabel("model utility MU (better →)")
        _legends(figure, points)
    return figure


def _panel(axes: Axes, points: pd.DataFrame, split: str) -> None:
    """Draw one split, from the background to the front."""
    kinds = {kind: points.loc[points["kind"] == kind] for kind in ("trial", "chosen", "reference")}
    low, high = min(points["forget_quality"]), max(*points["forget_quality"], 0.0)
    margin = 0.06 * max(high - low, 1.0)  # a model at FQ 0 is drawn whole
    axes.set_xlim(low - margin, high + margin)
    _guides(axes, kinds["reference"])
    _front(axes, points.loc[points["front"]])
    for trial in kinds["trial"].to_dict("records"):
        axes.plot(*_place(trial), **marker(trial["method"], trial["rectifier"]), ms=3.5, alpha=0.4, zorder=3)
    _arrows(axes, kinds["chosen"])
    for row in kinds["chosen"].to_dict("records"):
        x_sd, y_sd = (_bar(row[f"{metric}_sd"]) for metric in ("forget_quality", "model_utility"))
        style: dict[str, Any] = {"fmt": "none", "ecolor": colour(row["method"]), "elinewidth": 0.7, "zorder": 4}
        axes.errorbar(*_place(row), xerr=x_sd, yerr=y_sd, **style)
        axes.plot(*_place(row), **_bold(row["method"], row["rectifier"]), zorder=6)
    for model in kinds["reference"].to_dict("records"):
        axes.plot(*_place(model), **_star(model["method"]), zorder=7)
    axes.set_title(split_label(split))
    axes.set_xlabel("forget quality FQ, ln p (better →)")


def _place(point: dict[Hashable, Any]) -> tuple[float, float]:
    return point["forget_quality"], point["model_utility"]


def _guides(axes: Axes, models: pd.DataFrame) -> None:
    axes.axvline(SIGNIFICANT, color=GREY, linestyle=":", linewidth=0.8, zorder=1)
    for utility in models.loc[models["method"] == "original", "model_utility"]:
        axes.axhline(SHARE * utility, color=GREY, linestyle="--", linewidth=0.8, zorder=1)


def _front(axes: Axes, front: pd.DataFrame) -> None:
    """Draw the step line, carried on to the panel's left and lower edge: all below it is beaten by a trial."""
    if front.empty:
        return
    points = front.sort_values("forget_quality")
    x = [axes.get_xlim()[0], *points["forget_quality"], points["forget_quality"].iloc[-1]]
    y = [points["model_utility"].iloc[0], *points["model_utility"], axes.get_ylim()[0]]
    axes.plot(x, y, drawstyle="steps-pre", color="#999999", linewidth=1.0, zorder=2)


def _arrows(axes: Axes, chosen: pd.DataFrame) -> None:
    """Draw an arrow from each method to itself with GRU."""
    for method, pair in chosen.groupby("method"):
        ends = {row["rectifier"]: _place(row) for row in pair.to_dict("records")}
        if {"none", "gru"} <= set(ends) and ends["none"] != ends["gru"]:
            style = {"arrowstyle": "-|>", "color": colour(str(method)), "shrinkA": 0, "shrinkB": 3.5, "linewidth": 1.2}
            axes.annotate("", ends["gru"], ends["none"], arrowprops=style, zorder=5)


def _bold(method: str, rectifier: str) -> dict[str, Any]:
    """Return keywords for a chosen trial: larger, and white where it is hollow, to stand clear of what is behind."""
    face = {"fillstyle": "full", "markerfacecolor": "white"} if rectifier == "none" else {"markerfacecoloralt": "white"}
    return marker(method, rectifier) | face | {"markersize": 7, "markeredgewidth": 1.5}


def _star(role: str) -> dict[str, Any]:
    face = "black" if role == "original" else "white"
    return {"marker": "*", "ms": 11, "linestyle": "none", "markeredgecolor": "black", "markerfacecolor": face}


def _bar(sd: float) -> float | None:
    return None if pd.isna(sd) or sd == 0 else sd


def _legends(figure: Figure, points: pd.DataFrame) -> None:
    """Put the methods above the panels and the signs below them, outside the data."""
    methods = sorted(set(points.loc[points["kind"] != "reference", "method"]), key=lambda name: (rank(name), name))
    handles = [Line2D([], [], **marker(name, "gru"), ms=6, label=method_label(name)) for name in methods]
    if handles:
        figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 7), handletextpad=0.2)
    signs = list(_signs(points))
    if signs:
        figure.legend(handles=signs, loc="outside lower center", ncols=2 if figure.get_figwidth() < 6 else 4)


def _signs(points: pd.DataFrame) -> Iterable[Line2D]:
    """Yield a legend entry for every kind of sign that is drawn."""
    grey: dict[str, Any] = {"color": GREY, "marker": "o", "linestyle": "none"}
    for rectifier in CHOSEN:
        if any((points["kind"] == "chosen") & (points["rectifier"] == rectifier)):
            yield Line2D([], [], **grey, ms=6, mew=1.5, fillstyle=FILL[rectifier], label=CHOSEN[rectifier])
    if any(points["kind"] == "trial"):
        yield Line2D([], [], **grey, ms=3, alpha=0.4, label="every trial")
    if any(points["front"]):
        yield Line2D([], [], color="#999999", label="Pareto front of all trials")
    roles = set(points.loc[points["kind"] == "reference", "method"])
    if "original" in roles:
        yield Line2D([], [], **_star("original"), label="original model")
    if "retain" in roles:
        yield Line2D([], [], **_star("retain"), label="retain model")
    if "original" in roles:
        yield Line2D([], [], color=GREY, linestyle="--", linewidth=0.8, label=f"{SHARE:.0%} of the original's MU")
    if len(points):
        yield Line2D([], [], color=GREY, linestyle=":", linewidth=0.8, label="p = 0.05")
