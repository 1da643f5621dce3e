"""Figure 7 of the paper: angles between unlearning and retain gradient, in degrees, before and after rectification."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from analysis.figures.style import GREY, STYLE, abreast, line_signs, seeds_and_mean
from analysis.stats.steps import thinned, with_means
from analysis.tables.format import split_label
from analysis.tables.main import method_label
from analysis.tables.overlay import in_order

LINES: dict[str, tuple[str, str]] = {
    "Orig.": ("none", "observed_cos"),
    "Pre-rect.": ("gru", "cos_before"),
    "Post-rect.": ("gru", "cos_after"),
}
"""The paper's labels, and of which rectifier and which column they are."""
COLUMNS = ["split", "method", "line", "kind", "seed", "n", "step", "angle"]
LOOKS: dict[str, dict[str, Any]] = {
    "Orig.": {"color": "#D55E00", "linestyle": (0, (4, 1.5))},
    "Pre-rect.": {"color": "#000000", "linestyle": (0, (1, 1))},
    "Post-rect.": {"color": "#0072B2", "linestyle": "-"},
}
VECTORS = "angle between unlearning gradient and\nretain gradient or its average, degrees"
"""Orig. is to the retain gradient of other rows, Pre-rect. and Post-rect. are to GRU's moving average of it."""
ACROSS = 4
FINE = 60.0
"""Degrees up to which ticks are 10 apart; so that 90 always has one, they are 30 apart beyond."""


def points(steps: pd.DataFrame) -> pd.DataFrame:
    """Return a row a step of each seed and of their mean, `angle` in degrees.

    Orig.: of the plain method, observed every K steps against a retain gradient on rows of its own (`observe=K`).
    Pre-rect. and Post-rect.: of GRU at every step, against the moving average that it rectifies against.
    """
    parts = []
    for line, (rectifier, column) in LINES.items():
        rows = steps.loc[steps["rectifier"] == rectifier].dropna(subset=[column])
        cosines = rows[column].astype(float).clip(-1, 1)
        rows = rows.assign(line=line, angle=np.degrees(np.arccos(cosines)))
        parts += [thinned(seeds) for _, seeds in rows.groupby(["split", "method"], sort=False)]
    rows = pd.concat(parts) if parts else pd.DataFrame(columns=COLUMNS)
    found = with_means(rows.reindex(columns=COLUMNS), ["split", "method", "line"], ["angle"])
    return found.reindex(columns=COLUMNS)


def draw(drawn: pd.DataFrame, split: str) -> Figure:
    """Draw one split's `points`, a panel a method: an angle above 90 degrees works against what is to be retained."""
    here = drawn.loc[drawn["split"] == split]
    methods = in_order(here["method"])
    across = abreast(len(methods), ACROSS)
    rows = -(-len(methods) // across)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(min(7.4, 1.2 + 1.9 * across), 1.6 * rows + 0.95), layout="constrained")
        figure.suptitle(split_label(split), fontsize=8, fontweight="bold")
        grid = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False)
        for place, axes in enumerate(grid.flatten()):
            if place >= len(methods):
                axes.set_axis_off()
                continue
            _panel(axes, here.loc[here["method"] == methods[place]])
            axes.set_title(method_label(methods[place]))
            if place + across >= len(methods):
                axes.set_xlabel("step")
                axes.tick_params(labelbottom=True)
        wide = here["angle"].max() - here["angle"].min() > FINE
        for axes in grid[:, 0]:
            axes.yaxis.set_major_locator(MultipleLocator(30 if wide else 10))
        figure.supylabel(VECTORS, fontsize=8, multialignment="center")
        looks = {line: look for line, look in LOOKS.items() if line in set(here["line"])}
        figure.legend(handles=line_signs(looks, here), loc="outside lower center", ncols=5)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame) -> None:
    axes.axhline(90, color=GREY, linewidth=0.6, zorder=1)
    for line, look in LOOKS.items():
        seeds_and_mean(axes, rows.loc[rows["line"] == line], "angle", look)
