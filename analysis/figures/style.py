"""What all figures share: colours, markers, sizes for print, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from trainables.config.methods import METHODS, RECTIFIERS

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
"""A method of the user's own, or of another version of this platform."""
_PUBLISHED = (
    ("none", "#D55E00", DASHED),
    ("left", "#000000", (0, (1, 1))),
    ("right", "#009E73", (0, (5, 1, 1, 1))),
    ("full", "#0072B2", "-"),
)
_OWN = (("bottom", "#CC79A7", (0, (5, 1, 1, 1, 1, 1))), ("top", "#E69F00", (0, (8, 2))))
RECTIFIED: dict[str, tuple[Any, str, Any]] = dict(zip(RECTIFIERS, chain(_PUBLISHED, cycle(_OWN)), strict=False))
"""Each rectifier's fill of a marker, colour and line, by its place in RECTIFIERS: the user's own ones come last."""
SIGN = 3.2
"""A legend's entries that show a line's dashes, in the size of its letters."""
HALO = [withStroke(linewidth=2.2, foreground="white")]
"""Of a frame upon dark cells."""
FRAMED: dict[str, Any] = {"markersize": 7, "markeredgecolor": "black", "markeredgewidth": 1.3}
"""The chosen setting among others, as heat maps have it: hollow and full say without and with GRU in every figure."""
THICK = 1.5
"""Points, of a mean over seeds along training."""
LINES: dict[str, dict[str, Any]] = {
    "original": {"color": "black", "linestyle": (0, (6, 2)), "linewidth": 0.9},
    "retain": {"color": GREY, "linestyle": (0, (1, 1.5)), "linewidth": 1.4},
}
"""The reference models, drawn as lines across."""
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


def rank(method: str) -> int:
    """Return a number that a method keeps from report to report."""
    return list(METHODS).index(method) if method in METHODS else len(METHODS)


def colour(method: str) -> str:
    """Return a method's colour, the same in every figure."""
    return LOOKS.get(method, OTHER)[0]


def dashes(method: str) -> Any:
    """Return a method's line style where lines of several methods meet."""
    return LOOKS.get(method, OTHER)[2]


def rectified(rectifier: str) -> tuple[Any, str, Any]:
    """Return a rectifier's fill, colour and line; of an unknown one GRU's."""
    return RECTIFIED.get(rectifier, RECTIFIED["gru"])


def marker(method: str, rectifier: str) -> dict[str, Any]:
    """Return keywords for a method's marker: hollow for the plain method, full with GRU, half full with others."""
    return {
        "color": colour(method),
        "marker": LOOKS.get(method, OTHER)[1],
        "fillstyle": rectified(rectifier)[0],
        "linestyle": "none",
    }


def opaque(method: str, rectifier: str) -> dict[str, Any]:
    """Return `marker`, white where it is hollow, to stand clear of what is behind."""
    face = {"fillstyle": "full", "markerfacecolor": "white"} if rectifier == "none" else {"markerfacecoloralt": "white"}
    return marker(method, rectifier) | face


def abreast(count: int, most: int) -> int:
    """Return how many of `count` panels or entries stand beside one another, so that rows are as even as can be."""
    return -(-count // -(-count // most))


def method_signs(methods: Iterable[str]) -> list[Line2D]:
    """Return a legend entry for each method: its marker on its line."""
    looks = {name: marker(name, "gru") | {"linestyle": dashes(name), "linewidth": 1.2} for name in methods}
    return [
        Line2D([], [], **look, ms=6, label=METHODS[name].label if name in METHODS else name)
        for name, look in looks.items()
    ]


def seeds_and_mean(axes: Axes, rows: pd.DataFrame, value: str, look: dict[str, Any]) -> None:
    """Draw one line of `steps.with_means` over its steps: seeds thin, their mean thick."""
    for _, seed in rows.loc[rows["kind"] == "seed"].groupby("seed"):
        axes.plot(seed["step"], seed[value], **look, linewidth=0.5, alpha=0.5, zorder=2)
    mean = rows.loc[rows["kind"] == "mean"].sort_values("step")
    axes.plot(mean["step"], mean[value], **look, linewidth=THICK, zorder=3)


def line_signs(looks: dict[str, dict[str, Any]], rows: pd.DataFrame) -> list[Line2D]:
    """Return a legend entry for each label's look, and for single seeds where means are of several."""
    handles = [Line2D([], [], **look, linewidth=THICK, label=label) for label, look in looks.items()]
    if any(rows["n"] > 1):
        handles.append(Line2D([], [], color=GREY, linewidth=0.5, label="thin: one seed"))
    return handles


def save(figure: Figure, folder: Path, stem: str, drawn: pd.DataFrame) -> None:
    """Write STEM.pdf, .svg, .png (300 dpi) and the drawn points as STEM.csv; equal input gives equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout takes as long as the drawing: once for all three
        for kind, metadata in METADATA.items():
            figure.savefig(folder / f"{stem}.{kind}", dpi=300, metadata=metadata)
    drawn.to_csv(folder / f"{stem}.csv", index=False, lineterminator="\n")
