"""The figures of a report, from a sweep's results, from the paper's numbers, or of both, where there is data."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from analysis import paper
from analysis.figures import (
    bars,
    equal_utility,
    heatmap,
    panel_data,
    search_settings,
    sensitivity,
    task_vector_strength,
    tradeoff,
    training,
)
from analysis.labels import join_names, method_label, row_label
from analysis.load.goal_columns import Goals, find_goals, full_title
from analysis.stats.chosen_settings import STUDY_COLUMNS
from analysis.stats.sweep_results import Results

PAPER: dict[str, tuple[str, ...]] = {
    "main": ("tofu_main", "wmdp", "wmdp_rmu", "muse"),
    "gamma": ("tofu_gamma",),
    "tau": ("tofu_tau",),
    "uwc": ("tofu_uwc_ga", "tofu_uwc_npo"),
}
"""The paper's tables that figures are made of."""
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
    kind: str, figure: Figure, points: pd.DataFrame, *, stem: str = "", more: tuple[str, ...] = (), **words: str
) -> Picture:
    """Return a picture with the texts of its kind: `words` fill them in, `more` are names of further sentences."""
    texts = CAPTIONS["any"] | CAPTIONS[kind]
    subject, *caption = (texts[name].format(**words) for name in ("subject", "caption", *more))
    return Picture(stem or kind, figure, points, subject, " ".join(caption))


def _sources(points: pd.DataFrame) -> tuple[str, ...]:
    return ("laid_over",) * panel_data.has_both_sources(points)


def draw_tradeoff(results: Results) -> Picture:
    """Return the trade-off with all trials."""
    goals, points = results.goals, tradeoff.trial_points(results)
    figure = tradeoff.draw_trials(points, goals, results.rule)
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
    stem, study = f"settings-{split}-{method}-{rectifier}", f"{row_label(method, rectifier)} on {split}"
    if rectifier != "none":
        study = f"{method_label(method)} {study}"
    figure = search_settings.draw(points, goals, search_settings.rank_settings(points, shares))
    return _make_picture("settings", figure, points, stem=stem, study=study)


def draw_mixtures(points: pd.DataFrame) -> Iterator[Picture]:
    """Yield the curves of UWC's mixtures, from `uwc.mixture_points`: one picture for each split."""
    for split, here in points.groupby("split"):
        figure = equal_utility.draw_mixtures(points, str(split))
        yield _make_picture("mixtures", figure, here, stem=f"uwc-{split}", split=str(split))


def draw_sweeps(frames: Mapping[str, pd.DataFrame], beside: bool = False, several: bool = False) -> list[Picture]:
    """Return the pictures that the paper has too, but for those along training.

    `frames` are tidy rows of runs by the kinds of PAPER. `beside` lays the paper's numbers over a figure whose
    backbone and split are the paper's. `several` sweeps have their trade-off as arrows, one alone has all its trials.
    """
    if frames["main"].empty:
        return []
    near = {kind: panel_data.vary_only_gamma_tau(frames[kind]) for kind in ("gamma", "tau")}
    parts = {kind: _add_published(frame, kind, beside) for kind, frame in ({**frames} | near).items()}
    if several or len(parts["main"]) > len(frames["main"]):
        parts["arrows"] = parts["main"]
    if not several:
        parts["heat"] = panel_data.vary_only_gamma_tau(frames["main"])
    return list(_draw_parts(parts))


def draw_paper(tables: Mapping[str, str]) -> list[Picture]:
    """Return the pictures of these tables of the paper, each of its backbone, of all where that is empty.

    Their stems begin with `paper-`.
    """
    kept = {kind: [name for name in names if name in tables] for kind, names in PAPER.items()}
    parts = {
        kind: pd.concat([paper.mended(name, tables[name]) for name in names]) for kind, names in kept.items() if names
    }
    parts |= {"arrows": parts["main"]} if "main" in parts else {}
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


def _draw_parts(parts: dict[str, pd.DataFrame]) -> Iterator[Picture]:
    """Yield the pictures of tidy frames, by kind."""
    draw = {"arrows": _draw_arrows, "main": _draw_main, "gamma": _draw_sensitivity, "tau": _draw_sensitivity}
    draw |= {"heat": _draw_heat_maps, "uwc": _draw_shares}
    for kind, make in draw.items():
        if kind in parts:
            yield from make(parts[kind], kind)


def _draw_arrows(frame: pd.DataFrame, _: str) -> Iterator[Picture]:
    """Yield the trade-off of the chosen settings."""
    points, goals = tradeoff.arrow_points(frame), find_goals(frame["benchmark"].iloc[0])
    if len(points):
        names = {"x": full_title(goals.removal), "y": full_title(goals.retention)}
        yield _make_picture("arrows", tradeoff.draw_arrows(points), points, more=_sources(points), **names)


def _draw_main(frame: pd.DataFrame, _: str) -> Iterator[Picture]:
    """Yield the pairs."""
    points = bars.pair_points(frame)
    if any(points["improvement"].notna()):
        number = tuple({*points["benchmark"]} & CAPTIONS["pairs"].keys())
        more = (*number, *_sources(points))
        yield _make_picture("pairs", bars.draw(points), points, more=more, labels=_list_labels(points))


def _list_labels(points: pd.DataFrame) -> str:
    return join_names(column.label for column in panel_data.compared_columns(points))


def _draw_sensitivity(frame: pd.DataFrame, knob: str) -> Iterator[Picture]:
    points = sensitivity.curve_points(frame, knob)
    if len(points):
        more = ("runs",) * ("runs" in set(points["source"])) + _sources(points)
        yield _make_picture(knob, sensitivity.draw(points), points, more=more, labels=_list_labels(points))


def _draw_heat_maps(frame: pd.DataFrame, _: str) -> Iterator[Picture]:
    points = heatmap.cell_points(frame)
    pairs = points.assign(pair=points["gamma"] + " " + points["tau"]).groupby(["backbone", "split", "method"])
    grid = pairs[["gamma", "tau", "pair"]].transform("nunique")
    mostly_run = 2 * grid["pair"] > grid["gamma"] * grid["tau"]  # else the map is of gaps
    points = points.loc[(grid["gamma"] > 1) & (grid["tau"] > 1) & mostly_run]
    for split, here in points.groupby("split"):
        points = here.reset_index(drop=True)
        yield _make_picture("heat", heatmap.draw(here), points, stem=f"heat-{split}", split=str(split))


def _draw_shares(frame: pd.DataFrame, _: str) -> Iterator[Picture]:
    points = equal_utility.share_points(frame)
    if any(points["target"].notna()):
        yield _make_picture("uwc", equal_utility.draw_shares(points), points, more=_sources(points))


def draw_training(measured: pd.DataFrame) -> Iterator[Picture]:
    """Yield figures 1 and 7 of the paper, one for each split that has several steps, from `steps.load_steps`."""
    for kind, points, draw in (
        ("dynamics", training.step_points(measured), training.draw_steps),
        ("angles", training.angle_points(measured), training.draw_angles),
    ):
        steps = points.groupby(["split", "method"])["step"].transform("nunique")
        for split, rows in points.loc[steps.to_numpy() > 1].groupby("split"):
            here = rows.reset_index(drop=True)
            yield _make_picture(kind, draw(here, str(split)), here, stem=f"{kind}-{split}", split=str(split))
