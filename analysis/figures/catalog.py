"""Pictures with their captions, and those of tidy frames: of a sweep or of the paper's numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from analysis import paper
from analysis.figures import bars, panel_data, sensitivity
from analysis.labels import join_names

PAPER_TABLES_BY_FIGURE: dict[str, tuple[str, ...]] = {
    "pairs": ("tofu_main", "wmdp", "wmdp_rmu", "muse"),
    "gamma": ("tofu_gamma",),
    "tau": ("tofu_tau",),
}
FIGURE_KINDS: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], Any]] = {
    "pairs": (bars.bar_points, bars),
    "gamma": (partial(sensitivity.sensitivity_points, knob="gamma"), sensitivity),
    "tau": (partial(sensitivity.sensitivity_points, knob="tau"), sensitivity),
}
"""Pictures of tidy frames: their points, and the module whose `draw` draws these."""
CAPTIONS = tomllib.loads(Path(__file__).with_name("captions.toml").read_text(encoding="utf-8"))


class Picture(NamedTuple):
    """A figure, the name of its files, what is drawn, and its caption."""

    stem: str
    figure: Figure
    points: pd.DataFrame
    caption: str


def make_picture(kind: str, figure: Figure, points: pd.DataFrame, **words: str) -> Picture:
    """Return a picture with the caption of its kind, which `words` fill in."""
    return Picture(kind, figure, points, CAPTIONS[kind].format(**words))


def draw_each_split(kind: str, points: pd.DataFrame, draw: Callable[[pd.DataFrame], Figure]) -> Iterator[Picture]:
    """Yield a picture for each split, `KIND-SPLIT`."""
    for split, rows in points.groupby("split"):
        here = rows.reset_index(drop=True)
        yield make_picture(kind, draw(here), here, split=str(split))._replace(stem=f"{kind}-{split}")


def draw_sweep_pictures(frames: Mapping[str, pd.DataFrame]) -> list[Picture]:
    """Return the pictures of tidy rows of runs, which are given by the kinds of PAPER_TABLES_BY_FIGURE."""
    if frames["pairs"].empty:
        return []
    near = {kind: panel_data.select_rows_varying_gamma_tau(frames[kind]) for kind in ("gamma", "tau")}
    return list(_draw_parts({**frames, **near}))


def draw_paper_pictures(tables: Mapping[str, str]) -> list[Picture]:
    """Return the pictures of these tables of the paper, each of its backbone, of all where that is empty."""
    kept = {kind: [name for name in names if name in tables] for kind, names in PAPER_TABLES_BY_FIGURE.items()}
    tidy = {kind: [paper.load_corrected_table(name, tables[name]) for name in names] for kind, names in kept.items()}
    parts = {kind: pd.concat(frames) for kind, frames in tidy.items() if frames}
    mended = "The paper's numbers, known misprints mended."
    return [one._replace(stem=f"paper-{one.stem}", caption=f"{one.caption} {mended}") for one in _draw_parts(parts)]


def _draw_parts(parts: Mapping[str, pd.DataFrame]) -> Iterator[Picture]:
    """Yield the pictures of tidy frames, by kind, of which there is something to draw."""
    for kind, (list_points, module) in FIGURE_KINDS.items():
        points = list_points(parts[kind]) if kind in parts else pd.DataFrame()
        if points.empty:
            continue
        labels = join_names(goal.short for goal in panel_data.goals_with_rows(parts[kind]))
        yield make_picture(kind, module.draw(points), points, labels=labels)
