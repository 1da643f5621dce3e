"""The figures of a report, from a sweep's results, from the paper's numbers, or of both, where there is data."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from analysis import paper
from analysis.figures import (
    attacks,
    bars,
    equal_utility,
    heatmap,
    panel_data,
    rectifiers,
    sensitivity,
    task_vector_strength,
    tradeoff,
    training,
)
from analysis.labels import describe_method, join_names, split_label
from analysis.load.goal_columns import Goals, find_goals, full_title
from analysis.stats.chosen_settings import STUDY_COLUMNS
from analysis.stats.rectifier_comparison import OWN, Comparison
from analysis.stats.sweep_results import Results

PAPER: dict[str, tuple[str, ...]] = {
    "pairs": ("tofu_main", "wmdp", "wmdp_rmu", "muse"),
    "gamma": ("tofu_gamma",),
    "tau": ("tofu_tau",),
    "uwc": ("tofu_uwc_ga", "tofu_uwc_npo"),
}
"""The paper's tables that figures are made of."""
KINDS: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], Any]] = {
    "arrows": (tradeoff.arrow_points, tradeoff),
    "pairs": (bars.pair_points, bars),
    "gamma": (partial(sensitivity.curve_points, knob="gamma"), sensitivity),
    "tau": (partial(sensitivity.curve_points, knob="tau"), sensitivity),
    "uwc": (sensitivity.target_points, sensitivity),
}
"""Pictures of tidy frames: their points, and the module whose `draw` draws these."""
CAPTIONS = tomllib.loads(Path(__file__).with_name("captions.toml").read_text(encoding="utf-8"))


class Picture(NamedTuple):
    """A figure, the name of its files, what is drawn, what it says to those who cannot see it, and its caption."""

    stem: str
    figure: Figure
    points: pd.DataFrame
    subject: str
    caption: str

    @property
    def text(self) -> str:
        """Return what the figure says to those who cannot see it."""
        return f"{self.subject}; the points are in figures/{self.stem}.csv"


def _make_picture(
    kind: str, figure: Figure, points: pd.DataFrame, *, stem: str = "", more: Sequence[str] = (), **words: str
) -> Picture:
    """Return a picture with the texts of its kind: `words` fill them in, `more` are names of further sentences."""
    texts = CAPTIONS["any"] | CAPTIONS[kind]
    subject, *caption = (texts[name].format(**words) for name in ("subject", "caption", *more))
    return Picture(stem or kind, figure, points, subject, " ".join(caption))


def draw_tradeoff(results: Results) -> Picture:
    """Return the trade-off with all trials."""
    goals, points = results.goals, tradeoff.trial_points(results)
    figure = tradeoff.draw(points, results.rule)
    turned = ("turned",) * (goals.removal.best == "lowest")
    return _make_picture(
        "tradeoff", figure, points, more=turned, x=full_title(goals.removal), y=full_title(goals.retention)
    )


def draw_strengths(points: pd.DataFrame) -> Picture:
    """Return the curves of task vectors, from `strengths.strength_points`."""
    return _make_picture("strength", task_vector_strength.draw(points), points)


def draw_slices(points: pd.DataFrame, goals: Goals, shares: pd.DataFrame) -> Picture:
    """Return what each setting of one study does, from `importance.list_points` and its rows of importance."""
    split, method, rectifier = (str(points[name].iloc[0]) for name in STUDY_COLUMNS)
    stem, study = f"settings-{split}-{method}-{rectifier}", f"{describe_method(method, rectifier)} on {split}"
    figure = sensitivity.draw_slices(points, goals, shares)
    return _make_picture("settings", figure, points, stem=stem, study=study)


def draw_attacks(points: pd.DataFrame) -> Iterator[Picture]:
    """Return what attacks bring back, from `attacks.mean_shares`: one picture for each split."""
    return _draw_splits("attacks", points, attacks.draw)


def draw_rectifiers(comparison: Comparison) -> Iterator[Picture]:
    """Yield a forest plot for each split, and the mean ranks for each split and ranked goal at own best settings."""
    points, ranks = rectifiers.difference_points(comparison), comparison.ranks
    draw = partial(rectifiers.draw_differences, goals=comparison.goals)
    yield from _draw_splits("forest", points, draw, "rectifiers")
    for split in dict.fromkeys(ranks["split"] if len(ranks) else ()):
        for goal in comparison.ranked:
            here = ranks.loc[(ranks["split"] == split) & (ranks["metric"] == goal.metric) & (ranks["basis"] == OWN)]
            if len(here):
                figure = rectifiers.draw_ranks(here, f"{split_label(split)}: mean ranks by {goal.short}")
                words = {"stem": f"ranks-{split}-{goal.metric}", "goal": goal.short, "split": split}
                yield _make_picture("ranks", figure, here, **words)


def draw_mixtures(points: pd.DataFrame) -> Iterator[Picture]:
    """Return the curves of UWC's mixtures, from `equal_utility.mixture_points`: one picture for each split."""
    return _draw_splits("mixtures", points, equal_utility.draw, "uwc")


def draw_sweeps(frames: Mapping[str, pd.DataFrame], beside: bool = False, several: bool = False) -> list[Picture]:
    """Return the pictures that the paper has too, but for those along training.

    `frames` are tidy rows of runs by the kinds of PAPER. `beside` lays the paper's numbers over a figure whose
    backbone and split are the paper's. `several` sweeps have their trade-off as arrows, one alone has all its trials.
    """
    if frames["pairs"].empty:
        return []
    near = {kind: panel_data.vary_only_gamma_tau(frames[kind]) for kind in ("gamma", "tau")}
    parts = {kind: _add_published(frame, kind, beside) for kind, frame in ({**frames} | near).items()}
    if several or len(parts["pairs"]) > len(frames["pairs"]):
        parts["arrows"] = parts["pairs"]
    maps = [] if several else _draw_heat_maps(panel_data.vary_only_gamma_tau(frames["pairs"]))
    return [*_draw_parts(parts), *maps]


def draw_paper(tables: Mapping[str, str]) -> list[Picture]:
    """Return the pictures of these tables of the paper, each of its backbone, of all where that is empty.

    Their stems begin with `paper-`.
    """
    kept = {kind: [name for name in names if name in tables] for kind, names in PAPER.items()}
    parts = {
        kind: pd.concat([paper.mended(name, tables[name]) for name in names]) for kind, names in kept.items() if names
    }
    parts |= {"arrows": parts["pairs"]} if "pairs" in parts else {}
    mended = CAPTIONS["any"]["mended"]
    return [
        one._replace(stem=f"paper-{one.stem}", subject=f"The paper: {one.subject}", caption=f"{mended} {one.caption}")
        for one in _draw_parts(parts)
    ]


def _add_published(frame: pd.DataFrame, kind: str, beside: bool) -> pd.DataFrame:
    """Return a sweep's rows and, for `beside`, the paper's on the same benchmark, backbone and split."""
    places = frame[["benchmark", "backbone", "split"]].drop_duplicates()
    published = [paper.mended(table).merge(places) for table in PAPER[kind]] if beside else []
    return pd.concat([frame, *(part for part in published if len(part))], ignore_index=True)


def _draw_parts(parts: Mapping[str, pd.DataFrame]) -> Iterator[Picture]:
    """Yield the pictures of tidy frames, by kind, of which there is something to draw."""
    for kind, (list_points, module) in KINDS.items():
        points = list_points(parts[kind]) if kind in parts else pd.DataFrame()
        if points.empty:
            continue
        goals = find_goals(points["benchmark"].iloc[0])
        words = {"x": full_title(goals.removal), "y": full_title(goals.retention)}
        words["labels"] = join_names(column.label for column in panel_data.compared_columns(parts[kind]))
        more = [name for name in (goals.benchmark, *set(points["source"])) if name in CAPTIONS[kind]]
        more += ["laid_over"] * panel_data.has_both_sources(points)
        yield _make_picture(kind, module.draw(points), points, more=more, **words)


def _draw_heat_maps(frame: pd.DataFrame) -> Iterator[Picture]:
    points = heatmap.cell_points(frame)
    pairs = points.assign(pair=points["gamma"] + " " + points["tau"]).groupby(["backbone", "split", "method"])
    grid = pairs[["gamma", "tau", "pair"]].transform("nunique")
    mostly_run = 2 * grid["pair"] > grid["gamma"] * grid["tau"]  # else the map is of gaps
    points = points.loc[(grid["gamma"] > 1) & (grid["tau"] > 1) & mostly_run]
    yield from _draw_splits("heat", points, heatmap.draw)


def _draw_splits(
    kind: str, points: pd.DataFrame, draw: Callable[[pd.DataFrame], Figure], stem: str = ""
) -> Iterator[Picture]:
    """Yield a picture for each split, `STEM-SPLIT`."""
    for split, rows in points.groupby("split"):
        here = rows.reset_index(drop=True)
        yield _make_picture(kind, draw(here), here, stem=f"{stem or kind}-{split}", split=str(split))


def draw_training(measured: pd.DataFrame) -> Iterator[Picture]:
    """Yield figures 1 and 7 of the paper, one for each split that has several steps, from `steps.load_steps`."""
    for kind, points, draw in (
        ("dynamics", training.step_points(measured), training.draw_steps),
        ("angles", training.angle_points(measured), training.draw_angles),
    ):
        steps = points.groupby(["split", "method"])["step"].transform("nunique")
        yield from _draw_splits(kind, points.loc[steps.to_numpy() > 1], draw)
