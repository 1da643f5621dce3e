"""Pictures with their captions, and those of a sweep's tidy frame."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures import bars, sensitivity, style
from analysis.labels import join_names

FIGURE_KINDS: dict[str, tuple[tuple[str, ...], Callable[[pd.DataFrame], pd.DataFrame], Any]] = {
    "pairs": (("tofu_main", "wmdp", "wmdp_rmu", "muse"), bars.tabulate_gru_pairs, bars),
    "gamma": (("tofu_gamma",), partial(sensitivity.tabulate_sensitivity, knob="gamma"), sensitivity),
    "tau": (("tofu_tau",), partial(sensitivity.tabulate_sensitivity, knob="tau"), sensitivity),
}
"""Pictures of tidy frames: the paper's tables of the same, their points, and the module whose `draw` draws these."""
CAPTIONS = tomllib.loads(Path(__file__).with_name("captions.toml").read_text(encoding="utf-8"))


class Picture(NamedTuple):
    """A figure, the name of its files, what is drawn, and its caption."""

    stem: str
    figure: Figure
    points: pd.DataFrame
    caption: str


def caption_picture(kind: str, figure: Figure, points: pd.DataFrame, **words: str) -> Picture:
    """Return a picture with the caption of its kind, which `words` fill in."""
    return Picture(kind, figure, points, CAPTIONS[kind].format(**words))


def draw_split_pictures(kind: str, points: pd.DataFrame, draw: Callable[[pd.DataFrame], Figure]) -> Iterator[Picture]:
    """Yield a picture for each split, `KIND-SPLIT`."""
    for split, rows in points.groupby("split"):
        here = rows.reset_index(drop=True)
        yield caption_picture(kind, draw(here), here, split=str(split))._replace(stem=f"{kind}-{split}")


def draw_gru_pictures(frames: Mapping[str, pd.DataFrame]) -> Iterator[Picture]:
    """Yield the pictures of tidy rows of runs, given by the kinds of FIGURE_KINDS, where there is something to draw."""
    for kind, frame in frames.items() if len(frames["pairs"]) else ():
        _, list_points, module = FIGURE_KINDS[kind]
        points = list_points(frame if kind == "pairs" else sensitivity.select_rows_around_chosen(frame))
        if len(points):
            labels = join_names(goal.short for goal in style.list_measured_goals(frame))
            yield caption_picture(kind, module.draw(points), points, labels=labels)
