"""Figure 1 of the paper: the angle between unlearning and retain gradient, and the retain risk, along training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from analysis.figures.style import GREY, STYLE, abreast, line_signs, rectified, seeds_and_mean
from analysis.stats.steps import LINE, thinned, with_means
from analysis.tables.format import split_label
from analysis.tables.main import WITH, method_label
from analysis.tables.overlay import in_order

COLUMNS = [*LINE, "kind", "seed", "n", "step", "measured", "cos", "retain_loss"]
OBSERVED, STEPPED = "observe", "each step"
FROM = {OBSERVED: ("observed_cos", "observed_retain_loss"), STEPPED: ("cos_before", "retain_loss")}
LABELS = {"cos": r"$\cos(g_\mathrm{u}, g_\mathrm{r})$", "retain_loss": "retain risk"}
ACROSS = 4
HALF = 0.5
"""Between the ticks of cosines that differ by more."""
WIDE = 10.0
"""Risks that differ this many times are on a logarithmic axis."""


def points(steps: pd.DataFrame) -> pd.DataFrame:
    """Return a row a step of each seed and of their mean: `cos` before rectification and `retain_loss`.

    `measured`: on rows of their own every K steps (`observe`), where a line's trials have that; else of each rectified
    step, against the moving average. A method without rectifier and without observation has no line.
    """
    parts = []
    for _, line in steps.groupby(LINE, sort=False):
        observed = bool(line["observed_cos"].notna().any())
        measured = OBSERVED if observed else STEPPED
        names = dict(zip(FROM[measured], ("cos", "retain_loss"), strict=True))
        rows = line.drop(columns=["retain_loss"] * observed).rename(columns=names).dropna(subset=["cos"])
        parts.append(thinned(rows).assign(measured=measured))
    rows = pd.concat(parts) if parts else pd.DataFrame(columns=COLUMNS)
    found = with_means(rows.reindex(columns=COLUMNS), [*LINE, "measured"], ["cos", "retain_loss"])
    return found.reindex(columns=COLUMNS)


def draw(drawn: pd.DataFrame, split: str) -> Figure:
    """Draw one split's `points`: cosine above risk, a column a method; seeds thin, their mean thick."""
    here = drawn.loc[drawn["split"] == split]
    methods = in_order(here["method"])
    across = abreast(len(methods), ACROSS)
    blocks = -(-len(methods) // across)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(min(7.4, 1.2 + 1.9 * across), 2.9 * blocks + 0.75), layout="constrained")
        figure.suptitle(split_label(split), fontsize=8, fontweight="bold")
        for part, block in zip(_parts(figure, blocks), range(blocks), strict=True):
            shown = methods[block * across : (block + 1) * across]
            grid = part.subplots(2, across, sharex="col", sharey="row", squeeze=False)
            for column in range(across):
                for line, value in enumerate(LABELS):
                    axes = grid[line, column]
                    if column >= len(shown):
                        axes.set_axis_off()
                        continue
                    _panel(axes, here.loc[here["method"] == shown[column]], value)
                if column < len(shown):
                    grid[0, column].set_title(method_label(shown[column]))
                    grid[1, column].set_xlabel("step")
            _scales(grid, here)
        labels, shown = {"none": "method alone", **WITH}, set(here["rectifier"])
        looks = {label: _look(name) for name, label in labels.items() if name in shown}
        figure.legend(handles=line_signs(looks, here), loc="outside lower center", ncols=4)
    return figure


def _parts(figure: Figure, blocks: int) -> Iterable[Any]:
    return figure.subfigures(blocks, 1, squeeze=False).flatten()


def _scales(grid: Any, rows: pd.DataFrame) -> None:
    """Give all blocks the same axes."""
    for (value, label), line in zip(LABELS.items(), grid, strict=True):
        low, high = float(np.nanmin(rows[value])), float(np.nanmax(rows[value]))
        wide = value == "retain_loss" and 0 < WIDE * low <= high
        line[0].set_ylabel(label + (" (log axis)" if wide else ""))
        if wide:
            line[0].set_yscale("log")
            line[0].set_ylim(low / 1.2, high * 1.2)
        else:
            if value == "cos" and high - low > HALF:
                line[0].yaxis.set_major_locator(MultipleLocator(HALF))
            margin = 0.06 * ((high - low) or 0.1)
            line[0].set_ylim(low - margin, high + margin)


def _look(rectifier: str) -> dict[str, Any]:
    _, colour, line = rectified(rectifier)
    return {"color": colour, "linestyle": line}


def _panel(axes: Axes, rows: pd.DataFrame, value: str) -> None:
    if value == "cos":
        axes.axhline(0, color=GREY, linewidth=0.6, zorder=1)
    for rectifier, line in rows.groupby("rectifier"):
        seeds_and_mean(axes, line, value, _look(str(rectifier)))
