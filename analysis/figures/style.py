"""What all figures share: rows, panels, colours, markers, legends, sizes for print, and how they are written."""

from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import labels, paper
from analysis.labels import REFERENCE_LABELS, format_forget_split, list_goals_of_benchmark, order_names
from analysis.stats.sweep_results import RUNS_TABLE_NAME
from trainables.benchmarks import Goal
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.storage.folder_storage import resolve_path_inside

GREY = "#666666"
DASHED_LINE = (0, (4, 1.5))
BOW_TIE = ((-1, -1), (-1, 1), (1, -1), (1, 1), (-1, -1))
HOURGLASS = ((-1, -1), (1, -1), (-1, 1), (1, 1), (-1, -1))
GAIN_COLOUR, LOSS_COLOUR = "#004488", "#BB5566"
"""What a rectifier changes; no method has these colours."""
_PALETTE = """
    ga #D55E00 ga_kl #CC7766 gd #007A5A wga #CC3399 npo #0072B2 npo_kl #000077 npo_gd #9977FF simnpo #AA77BB
    simnpo_gd #7711CC rmu #660011 tv #777700 tru #3399AA idk_dpo #552255 idk_nll #443300 undial #00AA00
    satimp #FF0055 ceu #006600 pdu #EE11FF
""".split()
METHOD_COLOURS: dict[str, str] = dict(zip(_PALETTE[::2], _PALETTE[1::2], strict=True))
"""Each method's colour: at least 3 to 1 against white, and far from one another."""
METHOD_COLOURS |= zip((name for name in METHODS if name not in METHOD_COLOURS), ("#0000FF", "#FF0000"), strict=False)
MARK_SHAPES = ("h", "^", "v", "<", ">", "s", "D", "P", "X", "p", "d", BOW_TIE, HOURGLASS, (4, 1, 0), "8", (5, 1, 0))
RECTIFIER_MARKS: dict[str, Any] = {"none": "o", "gru": "o"}
RECTIFIER_MARKS |= zip((name for name in RECTIFIERS if name not in RECTIFIER_MARKS), MARK_SHAPES, strict=False)
"""Each rectifier's mark. That of none is a hollow circle, that of GRU a full one."""
PAGE_WIDTH_INCHES = 7.4
CHOSEN_FRAME_STYLE: dict[str, Any] = {"markersize": 9, "markerfacecolor": "none", "markeredgecolor": "black"}
MODEL_LINES: dict[str, dict[str, Any]] = {
    "original": {"color": "black", "linestyle": (0, (6, 2)), "linewidth": 0.9, "label": "original model"},
    "retain": {"color": GREY, "linestyle": (0, (1, 1.5)), "linewidth": 1.4, "label": "retain model"},
    "baseline": {"color": GREY, "linestyle": (0, (5, 1, 1, 1)), "linewidth": 1.2, "label": "never-trained model"},
}
CHANCE_STYLE: dict[str, Any] = {"color": "black", "linestyle": (0, (3, 1, 1, 1)), "linewidth": 0.9, "label": "chance"}
LOG_P_OF_5_PERCENT = float(np.log(0.05))
FIGURE_RC_PARAMS: dict[Any, Any] = {
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
METADATA_WITHOUT_DATES: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "png": {"Software": None},
}


def method_colour(method: str) -> str:
    return METHOD_COLOURS.get(method, GREY)


def marker_style(method: str, rectifier: str) -> dict[str, Any]:
    """Return keywords for a mark: the method's colour, the rectifier's shape; hollow, but white, for none."""
    look = {"color": method_colour(method), "marker": RECTIFIER_MARKS.get(rectifier, (6, 1, 0)), "linestyle": "none"}
    return look | ({"markerfacecolor": "white"} if rectifier == "none" else {})


def make_panels(rows: int, columns: int, width: float, height: float, **share: Any) -> tuple[Figure, Any]:
    """Return a figure and its grid of panels, each about so many inches; all are no wider than a page's text."""
    size = (min(PAGE_WIDTH_INCHES, max(4.0, 0.6 + width * columns)), 0.95 + height * rows)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **share)


def make_wrapped_panels(count: int, most: int, width: float, height: float, **share: Any) -> tuple[Figure, list[Axes]]:
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


@mpl.rc_context(FIGURE_RC_PARAMS)
def save_figure_and_points(figure: Figure, folder: Path, stem: str, points: pd.DataFrame) -> None:
    """Write STEM.pdf, .svg, .png (300 dpi) and the drawn points as STEM.csv; equal input gives equal bytes."""
    file = resolve_path_inside(folder, stem)
    folder.mkdir(parents=True, exist_ok=True)
    layout: Any = figure.get_layout_engine()
    layout.execute(figure)
    figure.set_layout_engine(None)  # the layout takes as long as the drawing: once for all three
    for kind, metadata in METADATA_WITHOUT_DATES.items():
        figure.savefig(f"{file}.{kind}", dpi=300, metadata=metadata)
    points.to_csv(f"{file}.csv", index=False, lineterminator="\n")


def select_measured_goal_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the measured goals of a tidy frame, with `source` (runs, paper)."""
    metrics = [goal.metric for goal in list_measured_goals(frame)]
    rows = frame.loc[frame["metric"].isin(metrics) & frame["value"].notna()]
    return rows.assign(source=rows["table"].where(rows["table"] == RUNS_TABLE_NAME, "paper"))


def list_measured_goals(frame: pd.DataFrame) -> tuple[Goal, ...]:
    """Return the goals of a frame's benchmark that it has rows of: none of a sweep that has no result yet."""
    if frame.empty:
        return ()
    names = set(frame["metric"])
    return tuple(goal for goal in list_goals_of_benchmark(frame["benchmark"].iloc[0]).all_goals if goal.metric in names)


def list_drawn_methods(points: pd.DataFrame) -> list[str]:
    """Return the methods that are drawn, without the reference models, in the order of the paper's table."""
    benchmark = str(points["benchmark"].iloc[0])
    table = "tofu_main" if benchmark == "tofu" else benchmark
    published = paper.load_table(table)["method"] if table in paper.TABLE_NAMES else []
    return order_names(set(points["method"]) - set(REFERENCE_LABELS), dict.fromkeys([*published, *METHODS]))


def split_points_by_panel(points: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return each panel's title, `Phi-1.5, forget05 (5%)` or without a backbone that is not known, and its rows.

    A panel is of one backbone and split, by name, which is the paper's order: Llama first, 5 % before 10 %.
    """
    places: Any = points.groupby(["backbone", "split"])
    titled = ((filter(None, [backbone, format_forget_split(split)]), rows) for (backbone, split), rows in places)
    return [(", ".join(title), rows) for title, rows in titled]


def sort_points_in_table_order(points: pd.DataFrame, *by: str) -> pd.DataFrame:
    """Return the rows by source and place, by metric as tables have these, by method, and by these columns."""
    orders = labels.NAME_ORDERS | {"metric": [goal.metric for goal in list_measured_goals(points)]}
    keys = ["source", "backbone", "split", "metric", "method", *by]
    return points.sort_values(keys, key=partial(labels.rank_values, orders=orders), kind="stable", ignore_index=True)
