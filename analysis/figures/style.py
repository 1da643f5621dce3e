"""What all figures share: colours, markers, legends, sizes for print, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, cycle
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from analysis.labels import method_label, order_rectifiers, rectifier_label
from trainables.config.method_tables import RECTIFIERS

GREY = "#666666"
DASHED = (0, (4, 1.5))
LOOKS: dict[str, tuple[str, str, Any]] = {
    "ga": ("#D55E00", "o", "-"),
    "gd": ("#009E73", "^", "-"),
    "wga": ("#CC79A7", "D", "-"),
    "npo": ("#0072B2", "v", "-"),
    "tv": ("#E69F00", "p", "-"),
    "tru": ("#56B4E9", "d", "-"),
    "simnpo_gd": ("#D55E00", ">", DASHED),
    "rmu": ("#009E73", "h", DASHED),
    "ga_kl": ("#CC79A7", "<", DASHED),
    "simnpo": ("#0072B2", "s", DASHED),
    "npo_gd": ("#E69F00", "X", DASHED),
    "npo_kl": ("#56B4E9", "P", DASHED),
}
"""Each method's colour, marker and line: no two share a marker, none that share a colour share a line.

Okabe and Ito's colours without yellow, too pale on white, and black, the original model's. The first six meet in the
figures of task vectors; markers and lines tell methods apart without colour.
"""
OTHER = (GREY, "8", DASHED)
"""The look of methods that are not the paper's."""


class RectifierLook(NamedTuple):
    """How a rectifier fills a method's marker, and its line where lines of several rectifiers of one method meet."""

    fill: Any
    colour: str
    dashes: Any


_PUBLISHED = (
    RectifierLook("none", "#D55E00", DASHED),
    RectifierLook("left", "#000000", (0, (1, 1))),
    RectifierLook("right", "#009E73", (0, (5, 1, 1, 1))),
    RectifierLook("full", "#0072B2", "-"),
)
_OWN = (RectifierLook("bottom", "#CC79A7", (0, (5, 1, 1, 1, 1, 1))), RectifierLook("top", "#E69F00", (0, (8, 2))))
RECTIFIER_LOOKS = dict(zip(RECTIFIERS, chain(_PUBLISHED, cycle(_OWN)), strict=False))
"""Each rectifier's look, by its place in RECTIFIERS: the user's own ones come last."""
LEGEND_LINE_LENGTH = 3.2
"""Length of the sample line in a legend, in font sizes: long enough to show its dashes."""
HALO = [withStroke(linewidth=2.2, foreground="white")]
"""The white outline of a frame, which makes it visible on dark cells."""
FRAMED: dict[str, Any] = {"markersize": 7, "markeredgecolor": "black", "markeredgewidth": 1.3}
"""The chosen setting among others, as heat maps have it: hollow and full say without and with GRU in every figure."""
THICK = 1.5
"""Line width of the mean over seeds along training, in points."""
LINES: dict[str, dict[str, Any]] = {
    "original": {"color": "black", "linestyle": (0, (6, 2)), "linewidth": 0.9},
    "retain": {"color": GREY, "linestyle": (0, (1, 1.5)), "linewidth": 1.4},
}
"""The reference models, drawn as lines across."""
CHANCE: dict[str, Any] = {"color": "#D55E00", "linestyle": (0, (3, 1, 1, 1)), "linewidth": 0.9}
"""What guessing reaches."""
SIGNIFICANT = float(np.log(0.05))
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.0,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "analysis",
}
METADATA: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "png": {"Software": None},
}


def colour(method: str) -> str:
    """Return a method's colour, the same in every figure."""
    return LOOKS.get(method, OTHER)[0]


def dashes(method: str) -> Any:
    """Return a method's line style where lines of several methods meet."""
    return LOOKS.get(method, OTHER)[2]


def rectifier_look(rectifier: str) -> RectifierLook:
    """Return a rectifier's look, the same in every figure; that of the user's first one if it is unknown."""
    return RECTIFIER_LOOKS.get(rectifier, _OWN[0])


def marker(method: str, rectifier: str) -> dict[str, Any]:
    """Return keywords for a method's marker: hollow for the plain method, full with GRU, half full with others."""
    return {
        "color": colour(method),
        "marker": LOOKS.get(method, OTHER)[1],
        "fillstyle": rectifier_look(rectifier).fill,
        "linestyle": "none",
    }


def opaque(method: str, rectifier: str) -> dict[str, Any]:
    """Return `marker`, white where it is hollow, so that nothing shows through."""
    face = {"fillstyle": "full", "markerfacecolor": "white"} if rectifier == "none" else {"markerfacecoloralt": "white"}
    return marker(method, rectifier) | face


def even_columns(count: int, most: int) -> int:
    """Return how many of `count` panels or entries stand beside one another, so that rows are as even as can be."""
    return -(-count // -(-count // most))


def make_grid(figure: Any, count: int, columns: int, **share: Any) -> list[Axes]:
    """Return `count` panels in rows of so many, the rest of the last row empty."""
    grid = figure.subplots(max(1, -(-count // columns)), columns, squeeze=False, **share).flatten()
    for axes in grid[count:]:
        axes.set_axis_off()
    return list(grid[: max(1, count)])


def legend_entry(label: str, **look: Any) -> Line2D:
    """Return a legend's entry: a line, or a marker without one."""
    return Line2D([], [], **look, label=label)


def add_method_legend(figure: Figure, methods: Sequence[str]) -> None:
    """Put an entry for each method, its marker on its line, above the panels."""
    if not methods:
        return
    looks = {name: marker(name, "gru") | {"linestyle": dashes(name), "linewidth": 1.2} for name in methods}
    handles = [legend_entry(method_label(name), **look, ms=6) for name, look in looks.items()]
    columns = even_columns(len(methods), 7 if figure.get_figwidth() > 6 else 4)
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=LEGEND_LINE_LENGTH)


def rectifier_entries(
    rectifiers: Iterable[str], look: Callable[[str], dict[str, Any]], label: str = "{}", alone: str = "method alone"
) -> list[Line2D]:
    """Return a legend entry for each rectifier that is drawn, `look` giving its keywords."""
    names = order_rectifiers(rectifiers)
    return [legend_entry(label.format(rectifier_label(name, alone)), **look(name)) for name in names]


def draw_error_bars(axes: Axes, x: Any, rows: pd.DataFrame, value: str, look: Mapping[str, Any]) -> None:
    """Draw bars of one sd around points that are drawn already."""
    bars: dict[str, Any] = {**look, "linestyle": "none", "marker": "none"}
    axes.errorbar(x, rows[value], rows["sd"].fillna(0), elinewidth=0.7, **bars)


def save_figure(figure: Figure, folder: Path, stem: str, points: pd.DataFrame) -> None:
    """Write STEM.pdf, .svg, .png (300 dpi) and the drawn points as STEM.csv; equal input gives equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout takes as long as the drawing: once for all three
        for kind, metadata in METADATA.items():
            figure.savefig(folder / f"{stem}.{kind}", dpi=300, metadata=metadata)
    points.to_csv(folder / f"{stem}.csv", index=False, lineterminator="\n")
