"""How a figure is cut for a narrow screen: its legends and its columns of panels, to stand one under another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox

from analysis.figures.style import STYLE

Box = tuple[float, float, float, float]
"""Left, top, width and height in points, from the figure's top left corner."""
Part = list[Box]
"""Boxes that are shown beside one another: a column of panels, after the first one's scale where it shares that."""


@mpl.rc_context(STYLE)
def list_rows(figure: Figure) -> list[list[Part]]:
    """Return the rows of a figure that is laid out, from its top on: titles, columns of panels, legends' columns."""
    scale, height = 72 / figure.dpi, figure.bbox.height
    drawn = FigureCanvasAgg(figure).get_renderer()  # texts remember that of the file that was written last
    rows = [[part] for part in _list_columns(figure, drawn)]
    rows += [[[text.get_window_extent(drawn).padded(2)]] for text in figure.texts if not text.get_rotation()]
    rows += [[[box] for box in _list_legend_columns(legend, drawn)] for legend in figure.legends]
    rows.sort(key=lambda row: (-round(row[0][-1].y1), row[0][-1].x0))
    return [
        [
            [(box.x0 * scale, (height - box.y1) * scale, box.width * scale, box.height * scale) for box in part]
            for part in row
        ]
        for row in rows
    ]


def _list_columns(figure: Any, drawn: RendererAgg) -> Iterator[list[Bbox]]:
    """Yield each column of panels, all rows of it, up to where the next one begins: colour bars are between."""
    panels = {axes: place for axes in figure.axes if axes.axison and (place := axes.get_subplotspec())}
    if not panels:
        return
    columns = [
        [axes for axes, place in panels.items() if place.colspan.start == start]
        for start in sorted({place.colspan.start for place in panels.values()})
    ]
    boxes = {axes: axes.get_tightbbox(drawn) for axes in figure.axes if axes.axison}
    whole = Bbox.union([*boxes.values()])
    lefts = [min(boxes[axes].x0 for axes in column) - 2 for column in columns]
    scale = Bbox.from_extents(0, whole.y0, columns[0][0].bbox.x0 - 2, whole.y1)
    for column, left, right in zip(columns, [0.0, *lefts[1:]], [*lefts[1:], whole.x1], strict=True):
        shared = not any(axes.yaxis.get_tick_params()["labelleft"] for axes in column)
        yield [*[scale] * shared, Bbox.from_extents(left, whole.y0, right, whole.y1)]


def _list_legend_columns(legend: Legend, drawn: RendererAgg) -> Iterator[Bbox]:
    """Yield each column of a legend, the samples left of its texts included."""
    legend.draw(drawn)  # which places its texts
    whole, texts = legend.get_window_extent(drawn), [text.get_window_extent(drawn) for text in legend.get_texts()]
    size = float(legend.get_texts()[0].get_fontsize()) * legend.figure.dpi / 72
    sample = (legend.handlelength + legend.handletextpad + 0.5) * size
    for left in sorted({round(text.x0) for text in texts}):
        right = max(text.x1 for text in texts if round(text.x0) == left)
        yield Bbox.from_extents(left - sample, whole.y0, right + 2, whole.y1)
