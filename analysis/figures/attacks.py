"""What attacks bring back: a measure of each chosen trial before and after, a panel for each attack."""

from __future__ import annotations

from statistics import fmean
from textwrap import wrap
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import LINES, STYLE, add_legend, colour, wrap_panels
from analysis.labels import describe_method

ACROSS = 4
"""Panels beside one another, at most."""


@mpl.rc_context(STYLE)
def draw(points: pd.DataFrame) -> Figure:
    """Draw `stats.attacks.mean_shares` of one split: methods in rows, a line from before to after.

    Lines: the target model and the retain model under the same attack; the target model is not relearned.
    """
    attacks = points.drop_duplicates(["attack", "step"]).to_dict("records")
    studies = points.drop_duplicates(["method", "rectifier"])
    names = [describe_method(row["method"], row["rectifier"]) for row in studies.to_dict("records")]
    figure, panels = wrap_panels(len(attacks), ACROSS, 1.75, 0.7 + 0.17 * len(names), sharex=True, sharey=True)
    for axes, attack in zip(panels, attacks, strict=True):
        here = points.loc[(points["attack"] == attack["attack"]) & (points["step"] == attack["step"])]
        keys = ["method", "rectifier"]
        _draw_panel(axes, studies[keys].merge(here, on=keys, how="left"))  # a row for each method in every panel
        axes.set_title("\n".join(wrap(attack["title"], 26)), fontsize=6.5)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel("ROUGE" if attack["attack"] == "sampling" else "ES")
    add_legend(figure)
    return figure


def _draw_panel(axes: Axes, rows: pd.DataFrame) -> None:
    for role, column in (("original", "target"), ("retain", "retain")):
        values = [float(value) for value in rows[column] if not pd.isna(value)]
        if values:
            axes.axvline(fmean(values), **LINES[role], zorder=1)
    for place, row in enumerate(rows.to_dict("records")):
        look: dict[str, Any] = {"marker": "o", "markersize": 4, "color": colour(row["method"])}
        axes.plot([row["before"], row["after"]], [place] * 2, color=look["color"], linewidth=1.2, zorder=2)
        axes.plot(row["before"], place, **look, markerfacecolor="white", zorder=3)
        axes.plot(row["after"], place, **look, zorder=4)
