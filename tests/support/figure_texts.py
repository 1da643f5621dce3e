"""Texts of a figure and where they are, for tests."""

from itertools import combinations
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from analysis.figures.style import FIGURE_RC_PARAMS

SLACK = 1.0
"""Pixels at 100 per inch that extents may share: they are boxes around glyphs, with some air."""


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Return the pairs of texts whose extents intersect, and (text, "edge") for what reaches out of the figure."""
    with mpl.rc_context(FIGURE_RC_PARAMS):
        figure.draw_without_rendering()
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    pairs = [(one, other, Bbox.intersection(a, b)) for (one, a), (other, b) in combinations(boxes, 2)]
    found = [(one, other) for one, other, both in pairs if both and min(both.width, both.height) > SLACK]
    width, height = figure.bbox.size
    for text, box in boxes:
        if box.x0 < -SLACK or box.y0 < -SLACK or box.x1 > width + SLACK or box.y1 > height + SLACK:
            found.append((text, "edge"))
    return found


def texts(figure: Figure) -> list[Text]:
    """Return every visible text: of panels, of legends, and of the whole figure and its parts."""
    found: list[Text] = []
    for part in (figure, *figure.subfigs):
        found += [*part.texts, *(text for legend in part.legends for text in legend.get_texts())]
        title: Any = getattr(part, "_suptitle", None)
        found += [title] if title is not None else []
    for axes in figure.axes:
        found += _of_panel(axes)
    return list(dict.fromkeys(text for text in found if text.get_text() and text.get_visible()))


def _of_panel(axes: Axes) -> list[Text]:
    if not axes.axison:
        return []
    found = [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]  # type: ignore[attr-defined]
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        found += [tick.label1 for tick in ticks if low <= tick.get_loc() <= high]
    return found


def labels(figure: Figure) -> set[str]:
    """Return the texts of the legends."""
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}
