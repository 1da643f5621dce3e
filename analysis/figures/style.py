"""What all figures share: colours, markers, legends, sizes for print, and how they are written."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from trainables.config.method_tables import RECTIFIERS
from trainables.storage.folder_storage import place_inside

GREY = "#666666"
DASHED, DOTTED = (0, (4, 1.5)), (0, (1, 1))
BOW_TIE = ((-1, -1), (-1, 1), (1, -1), (1, 1), (-1, -1))
HOURGLASS = ((-1, -1), (1, -1), (-1, 1), (1, 1), (-1, -1))
ORDER = "ga gd wga npo tv tru simnpo_gd rmu ga_kl simnpo npo_gd npo_kl idk_dpo idk_nll undial satimp ceu pdu".split()
COLOURS = ("#D55E00", "#009E73", "#CC79A7", "#0072B2", "#E69F00", "#56B4E9")
MARKERS = (*"o^Dvpd>h<sXP", (4, 1, 0), BOW_TIE, HOURGLASS, (5, 0, 180), (6, 1, 0), "H")
LOOKS: dict[str, tuple[str, Any, Any]] = {
    name: (COLOURS[at % 6], marker, ("-", DASHED, DOTTED)[at // 6])
    for at, (name, marker) in enumerate(zip(ORDER, MARKERS, strict=True))
}
"""Each method's colour (Okabe and Ito's), marker and line: no two share a marker, nor a colour and a line."""
OTHER = (GREY, "8", DASHED)
"""The look of methods that are not the paper's."""


class RectifierStyle(NamedTuple):
    """How a rectifier fills a method's marker, and its line where lines of several rectifiers of one method meet."""

    fill: Any
    colour: str
    dashes: Any


RECTIFIER_LOOKS = {
    "none": RectifierStyle("none", "#D55E00", DASHED),
    "clip": RectifierStyle("left", "#000000", (0, (1, 1))),
    "agem": RectifierStyle("right", "#009E73", (0, (5, 1, 1, 1))),
    "gru": RectifierStyle("full", "#0072B2", "-"),
}
"""Each rectifier's look; of other rules than GRU no two share colour and line, but three share a fill."""
RULES = [
    RectifierStyle(fill, colour, dashes)
    for fill, dashes in (("left", "-"), ("right", DASHED), ("top", (0, (2, 1))), ("bottom", (0, (1, 2))))
    for colour in ("#CC79A7", "#E69F00", "#56B4E9", "#009E73")
]
RECTIFIER_LOOKS |= zip((name for name in RECTIFIERS if name not in RECTIFIER_LOOKS), cycle(RULES), strict=False)
PAGE = 7.4
"""Width of a page's text, in inches."""
FRAMED: dict[str, Any] = {"markersize": 7, "markeredgecolor": "black", "markeredgewidth": 1.3}
"""The chosen setting among others."""
THICK = 1.5
"""Line width of the mean over seeds along training, in points."""
LINES: dict[str, dict[str, Any]] = {
    "original": {"color": "black", "linestyle": (0, (6, 2)), "linewidth": 0.9, "label": "original model"},
    "retain": {"color": GREY, "linestyle": (0, (1, 1.5)), "linewidth": 1.4, "label": "retain model"},
    "baseline": {"color": GREY, "linestyle": (0, (5, 1, 1, 1)), "linewidth": 1.2, "label": "never-trained model"},
}
"""The reference models, drawn as lines across."""
CHANCE: dict[str, Any] = {"color": "#D55E00", "linestyle": (0, (3, 1, 1, 1)), "linewidth": 0.9, "label": "chance"}
"""What guessing reaches."""
SIGNIFICANT = float(np.log(0.05))
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "legend.handlelength": 3.2,  # font sizes: long enough to show a line's dashes
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


def method_colour(method: str) -> str:
    return LOOKS.get(method, OTHER)[0]


def line_style(method: str) -> Any:
    """Return a method's line style where lines of several methods meet."""
    return LOOKS.get(method, OTHER)[2]


def rectifier_style(rectifier: str) -> RectifierStyle:
    return RECTIFIER_LOOKS.get(rectifier, RULES[-1])


def marker_style(method: str, rectifier: str) -> dict[str, Any]:
    """Return keywords for a method's marker: hollow for the plain method, full with GRU, half full with others."""
    shape, fill = LOOKS.get(method, OTHER)[1], rectifier_style(rectifier).fill
    look = {"color": method_colour(method), "marker": shape, "fillstyle": fill, "linestyle": "none"}
    if isinstance(shape, tuple) and fill not in ("none", "full"):
        pale = tuple(0.6 + 0.4 * part for part in to_rgb(method_colour(method)))
        look |= {"fillstyle": "full", "markerfacecolor": pale}
    return look


def solid_style(method: str, rectifier: str) -> dict[str, Any]:
    """Return `marker_style`, white where it is hollow, so that nothing shows through."""
    face = {"fillstyle": "full", "markerfacecolor": "white"} if rectifier == "none" else {"markerfacecoloralt": "white"}
    return marker_style(method, rectifier) | face


def make_panels(rows: int, columns: int, width: float, height: float, **share: Any) -> tuple[Figure, Any]:
    """Return a figure and its grid of panels, each about so many inches; all are no wider than a page's text."""
    size = (min(PAGE, max(4.0, 0.6 + width * columns)), 0.95 + height * rows)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **share)


def wrap_panels(count: int, most: int, width: float, height: float, **share: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure and so many panels, at most `most` in a row; the rest of the last row is empty."""
    columns = min(count, most)
    figure, grid = make_panels(-(-count // columns), columns, width, height, **share)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return figure, list(grid.flat[:count])


def add_legend(figure: Figure) -> None:
    """Put an entry for each label of lines and bars below the panels, in as many columns as the longest leaves room."""
    entries: dict[Any, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        columns = max(1, int(figure.get_figwidth() / (0.65 + 0.05 * max(map(len, entries)))))
        figure.legend(entries.values(), entries, loc="outside lower center", ncols=columns, markerscale=0.8)


def save_figure(figure: Figure, folder: Path, stem: str, points: pd.DataFrame) -> None:
    """Write STEM.pdf, .svg, .png (300 dpi) and the drawn points as STEM.csv; equal input gives equal bytes."""
    file = place_inside(folder, stem)
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        layout: Any = figure.get_layout_engine()
        layout.execute(figure)
    figure.set_layout_engine(None)  # the layout takes as long as the drawing: once for all three
    with mpl.rc_context(STYLE):
        for kind, metadata in METADATA.items():
            figure.savefig(f"{file}.{kind}", dpi=300, metadata=metadata)
    points.to_csv(f"{file}.csv", index=False, lineterminator="\n")
