"""The figures of a report, from a sweep's results, from the paper's numbers, or of both, where there is data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from analysis import paper
from analysis.figures import bars, frames, heatmap, sensitivity, strengths, tradeoff, training, uwc
from analysis.labels import join_names, split_label
from analysis.load.goals import find_goals
from analysis.stats import steps, tidy
from analysis.stats.results import Results

PAPER: dict[str, tuple[str, ...]] = {
    "main": ("tofu_main", "wmdp", "wmdp_rmu", "muse"),
    "gamma": ("tofu_gamma",),
    "tau": ("tofu_tau",),
    "uwc": ("tofu_uwc_ga", "tofu_uwc_npo"),
}
"""The paper's tables that figures are made of."""
MEANS_END = " Where a seed stopped before the others its line's mean ends."
LAID_OVER = " The paper's numbers, known misprints mended, are laid over those of the same backbone and split."


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


def draw_tradeoff(results: Results) -> Picture:
    """Return the trade-off with all trials."""
    goals = results.goals
    points = tradeoff.trial_points(results)
    turned = ": x runs from high to low" if goals.x.best == "lowest" else ""
    caption = (
        f"Up and to the right is better{turned}. Faint: every evaluated trial. Bold: each method's chosen setting "
        "(mean over seeds, bars one sd), hollow without GRU, full with it; the arrow shows what GRU changes. Grey "
        "line: Pareto front of all settings tried, each the mean over its seeds as in the tables, without those that "
        "are no better than the original model on either goal."
    )
    subject = f"{goals.x.name} against {goals.y.name}, a panel a split"
    return Picture("tradeoff", tradeoff.draw_trials(points, goals, results.rule), points, subject, caption)


def draw_strengths(points: pd.DataFrame) -> Picture:
    """Return the curves of task vectors, from `strengths.strength_points`."""
    caption = (
        "A column a method over its strength, and both over how far they moved the weights. Means over seeds, bars one "
        "sd; lines join measured strengths. Framed: the chosen strength. Lines across: the original and the retain "
        "model."
    )
    subject = "Forget quality and model utility over the strengths of TRU and TV"
    return Picture("strength", strengths.draw(points), points, subject, caption)


def draw_mixtures(points: pd.DataFrame) -> Iterator[Picture]:
    """Yield the curves of UWC's mixtures, from `uwc.mixture_points`: a picture a split, the last with the caption."""
    splits = sorted(points["split"].unique())
    caption = (
        "A row a method, a line a seed of its chosen setting, alone and w/ GRU. Large marks: the targets' "
        "mixtures. In the right column, of two points at equal MU the one further right forgets better."
    )
    for split in splits:
        here = points.loc[points["split"] == split]
        subject = f"Forget quality and model utility of mixtures on {split}"
        figure = uwc.draw_mixtures(points, split)
        yield Picture(f"uwc-{split}", figure, here, subject, caption if split == splits[-1] else "")


def draw_sweep(
    frame: pd.DataFrame, runs: pd.DataFrame, measured: pd.DataFrame | None = None, beside: bool = False
) -> list[Picture]:
    """Return the pictures that the paper has too, from `tidy.from_runs`, `runs.load` and `steps.load` (`measured`).

    `beside` lays the paper's numbers over a figure whose backbone, split and dialect are the paper's.
    """
    if frame.empty:
        return []
    beside = beside and tidy.in_paper_dialect(runs)
    near = frames.near_chosen(frame, runs)
    parts = {kind: _add_published(frame, kind, beside) for kind in ("main", "uwc")}
    parts |= {kind: _add_published(near, kind, beside) for kind in ("gamma", "tau")} | {"heat": near}
    return [*_draw_parts(parts), *(draw_training(measured) if measured is not None else [])]


def draw_paper(tables: Mapping[str, str]) -> list[Picture]:
    """Return the pictures of these tables of the paper, each of its backbone, of all where that is empty.

    Their stems begin with `paper-`.
    """
    kept = {kind: [name for name in names if name in tables] for kind, names in PAPER.items()}
    parts = {
        kind: pd.concat([paper.mended(name, tables[name]) for name in names]) for kind, names in kept.items() if names
    }
    mended = "The paper's numbers, known misprints mended."
    return [
        one._replace(stem=f"paper-{one.stem}", subject=f"The paper: {one.subject}", caption=f"{mended} {one.caption}")
        for one in _draw_parts(parts)
    ]


def _add_published(frame: pd.DataFrame, kind: str, beside: bool) -> pd.DataFrame:
    """Return a sweep's rows and, for `beside`, those of the paper that belong there."""
    published = [frames.match_published(frame, paper.mended(table)) for table in PAPER[kind]] if beside else []
    return pd.concat([frame, *(part for part in published if len(part))], ignore_index=True)


def _draw_parts(parts: dict[str, pd.DataFrame]) -> Iterator[Picture]:
    """Yield the pictures of tidy frames, by kind."""
    if "main" in parts:
        yield from _draw_arrows(parts["main"])
        yield from _draw_pairs(parts["main"])
    for knob in ("gamma", "tau"):
        if knob in parts:
            yield from _draw_sensitivity(parts[knob], knob)
    if "heat" in parts:
        yield from _draw_heat_maps(parts["heat"])
    if "uwc" in parts:
        yield from _draw_shares(parts["uwc"])


def _explain_sources(points: pd.DataFrame) -> str:
    return LAID_OVER if frames.has_both_sources(points) else ""


def _draw_arrows(frame: pd.DataFrame) -> Iterator[Picture]:
    """Yield the trade-off where the paper's numbers take part; runs alone have the one with all trials."""
    points = tradeoff.arrow_points(frame)
    if "paper" not in set(points["source"]):
        return
    goals = find_goals(points["benchmark"].iloc[0])
    subject = f"{goals.x.name} against {goals.y.name}, an arrow from each method to itself with GRU"
    caption = "An arrow goes from each method to itself with GRU: better is to the right and upwards."
    yield Picture("arrows", tradeoff.draw_arrows(points), points, subject, caption + _explain_sources(points))


def _draw_pairs(frame: pd.DataFrame) -> Iterator[Picture]:
    points = bars.pair_points(frame)
    if not any(points["improvement"].notna()):
        return
    labels = join_names(column.label for column in frames.compared_columns(points))
    caption = (
        "White: the method alone; grey: w/ GRU. The bar between the two ends is what GRU changes. Its number stands "
        "beyond all bars and lines, and is positive where that is better, whichever way the metric goes."
    )
    if any(points["none_n"].gt(1) | points["gru_n"].gt(1)):
        caption += " Means over seeds, bars one sd."
    subject = f"{labels} of each method alone and with GRU as pairs of bars"
    yield Picture("pairs", bars.draw(points), points, subject, caption + _explain_sources(points))


def _draw_sensitivity(frame: pd.DataFrame, knob: str) -> Iterator[Picture]:
    points = sensitivity.curve_points(frame, knob)
    if points.empty:
        return
    labels = join_names(column.label for column in frames.compared_columns(points))
    sentences = [f"Methods with GRU over {knob}."]
    if "runs" in set(points["source"]):
        other = sensitivity.OTHER[knob]
        sentences.append(f"{other} is that of each method's chosen setting, which is framed; bars one sd over seeds.")
    if "none" in set(points["setting"]):
        sentences.append({"tau": "none: no clipping.", "gamma": "none: no moving average, as gamma = 1."}[knob])
    caption = " ".join(sentences) + _explain_sources(points)
    yield Picture(knob, sensitivity.draw(points), points, f"{labels} with GRU over {knob}, a line a method", caption)


def _draw_heat_maps(frame: pd.DataFrame) -> Iterator[Picture]:
    points = heatmap.cell_points(frame)
    grid = points.groupby(["backbone", "split", "method"])[["gamma", "tau"]].transform("nunique")
    points = points.loc[(grid["gamma"] > 1) & (grid["tau"] > 1)]
    for (_, split), here in points.groupby(["backbone", "split"]):
        caption = (
            f"tau and gamma on {split_label(str(split))}; brighter is better, hatched was not run, framed is the "
            "chosen setting."
        )
        subject = f"A heat map of tau and gamma for each method on {split}"
        yield Picture(f"heat-{split}", heatmap.draw(here), here.reset_index(drop=True), subject, caption)


def _draw_shares(frame: pd.DataFrame) -> Iterator[Picture]:
    points = uwc.share_points(frame)
    if any(points["target"].notna()):
        subject = "Forget quality over the share of utility that UWC keeps, alone and with GRU"
        caption = "FQ of mixtures that keep the same share of the original's MU (UWC); higher forgets better."
        yield Picture("uwc", uwc.draw_shares(points), points, subject, caption + _explain_sources(points))


def draw_training(measured: pd.DataFrame) -> Iterator[Picture]:
    """Yield figures 1 and 7 of the paper, a picture a split, from `steps.load`."""
    along, turned = training.step_points(measured), training.angle_points(measured)
    for split in sorted(along["split"].unique()):
        here = along.loc[along["split"] == split].reset_index(drop=True)
        subject = f"Cosine of unlearning and retain gradient, and retain risk, along training on {split}"
        yield Picture(f"dynamics-{split}", training.draw_steps(here, split), here, subject, _explain_steps(here))
    for split in sorted(turned["split"].unique()):
        here = turned.loc[turned["split"] == split].reset_index(drop=True)
        subject = f"Angles of unlearning and retain gradient before and after rectification on {split}"
        caption = (
            "Above 90 degrees a step works against what is to be retained. Pre-rect. and Post-rect. are against GRU's "
            "moving average of the retain gradient, Orig. (the method alone, where it was observed) against a retain "
            "gradient on other rows."
        )
        caption += MEANS_END * steps.ends_early(here, training.ANGLE_LINE)
        yield Picture(f"angles-{split}", training.draw_angles(here, split), here, subject, caption)


def _explain_steps(points: pd.DataFrame) -> str:
    """Return the caption of figure 1, which says what was measured how."""
    caption = "Before rectification, of the chosen settings. g_u: the unlearning gradient, g_r: the retain gradient; "
    caption += "risk: the NLL of retain rows."
    kinds = set(points["measured"])
    if training.OBSERVED in kinds:
        caption += " Measured on retain rows that no step uses, every K steps (observe=K)."
    if training.STEPPED in kinds:
        who = "Lines that were not observed are" if training.OBSERVED in kinds else "Measured"
        caption += f" {who} of the rectified steps themselves, the cosine against the moving average."
    if "none" not in set(points["rectifier"]):
        caption += " Methods alone measure neither: run the sweep with --set observe=K."
    return caption + MEANS_END * steps.ends_early(points, steps.LINE)
