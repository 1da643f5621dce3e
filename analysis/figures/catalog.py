"""The figures of a report, from a sweep's results, from the paper's numbers, or of both: those that there is data for.

The trade-off with all trials, the curves of task vectors and those of UWC's mixtures are made where they are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from analysis import paper
from analysis.figures import angles, arrows, bars, heatmap, sensitivity, shares, training
from analysis.load import goals
from analysis.stats import steps
from analysis.tables import overlay
from analysis.tables.format import split_label

PAPER: dict[str, tuple[str, ...]] = {
    "main": ("tofu_main", "wmdp", "wmdp_rmu", "muse"),
    "gamma": ("tofu_gamma",),
    "tau": ("tofu_tau",),
    "heat": ("tofu_tau", "tofu_gamma"),
    "uwc": ("tofu_uwc_ga", "tofu_uwc_npo"),
}
"""The paper's tables that figures are made of."""
MEANS = " Where a seed stopped before the others its line's mean ends."
LAID = " The paper's numbers, known misprints mended, are laid over those of the same backbone and split."


class Picture(NamedTuple):
    """A figure, the name of its files, what is drawn, what it says to those who cannot see it, and its caption."""

    stem: str
    figure: Figure
    points: pd.DataFrame
    text: str
    caption: str


def of(
    frame: pd.DataFrame, runs: pd.DataFrame, measured: pd.DataFrame | None = None, beside: bool = False
) -> list[Picture]:
    """Return the pictures of a sweep, from `tidy.from_runs`, `runs.load` and `steps.load` (`measured`).

    `beside` lays the paper's numbers over a figure whose backbone, split and dialect are the paper's.
    """
    if frame.empty:
        return []
    beside = beside and overlay.alike(runs)
    near = overlay.near_chosen(frame, runs)
    parts = {kind: _laid(frame, kind, beside) for kind in ("main", "uwc")}
    parts |= {kind: _laid(near, kind, beside) for kind in ("gamma", "tau")} | {"heat": near}
    return [*_tables(parts), *(_training(measured) if measured is not None else [])]


def of_paper(tables: Mapping[str, str]) -> list[Picture]:
    """Return the pictures of these tables of the paper, each of its backbone, of all where that is empty.

    Their stems begin with `paper-`.
    """
    kept = {kind: [name for name in names if name in tables] for kind, names in PAPER.items()}
    parts = {
        kind: pd.concat([paper.mended(name, tables[name]) for name in names]) for kind, names in kept.items() if names
    }
    return [_marked(picture) for picture in _tables(parts)]


def _marked(picture: Picture) -> Picture:
    stem = f"paper-{picture.stem}"
    text = picture.text.replace(_csv(picture.stem), _csv(stem))
    return picture._replace(
        stem=stem, text=f"The paper: {text}", caption=f"The paper's numbers, known misprints mended. {picture.caption}"
    )


def _laid(frame: pd.DataFrame, kind: str, beside: bool) -> pd.DataFrame:
    """Return a sweep's rows and, for `beside`, those of the paper that belong there."""
    laid = [overlay.beside(frame, paper.mended(table)) for table in PAPER[kind]] if beside else []
    return pd.concat([frame, *(part for part in laid if len(part))], ignore_index=True)


def _tables(parts: dict[str, pd.DataFrame]) -> Iterator[Picture]:
    """Yield the pictures of tidy frames, by kind."""
    main = parts.get("main")
    if main is not None:
        yield from _arrows(main)
        yield from _pairs(main)
    for knob in ("gamma", "tau"):
        if knob in parts:
            yield from _sensitivity(parts[knob], knob)
    if "heat" in parts:
        yield from _heat(parts["heat"])
    if "uwc" in parts:
        yield from _shares(parts["uwc"])


def _csv(stem: str) -> str:
    return f"the points are in figures/{stem}.csv"


def _laid_over(drawn: pd.DataFrame) -> str:
    return LAID if set(drawn["source"]) == {"runs", "paper"} else ""


def _arrows(frame: pd.DataFrame) -> Iterable[Picture]:
    """The trade-off where the paper's numbers take part; runs alone have the one with all trials."""
    drawn = arrows.points(frame)
    if "paper" not in set(drawn["source"]):
        return
    what = goals.goals(drawn["benchmark"].iloc[0])
    text = f"{what.x.name} against {what.y.name}, an arrow from each method to itself with GRU; {_csv('arrows')}"
    caption = "An arrow goes from each method to itself with GRU: better is to the right and upwards."
    yield Picture("arrows", arrows.draw(drawn), drawn, text, caption + _laid_over(drawn))


def _pairs(frame: pd.DataFrame) -> Iterable[Picture]:
    drawn = bars.points(frame)
    if not any(drawn["improvement"].notna()):
        return
    labels = goals.listed(column.label for column in overlay.compared(drawn))
    text = f"{labels} of each method alone and with GRU as pairs of bars; {_csv('pairs')}"
    caption = (
        "White: the method alone; grey: w/ GRU. The bar between the two ends is what GRU changes. Its number stands "
        "beyond all bars and lines, and is positive where that is better, whichever way the metric goes."
    )
    if any(drawn["none_n"].gt(1) | drawn["gru_n"].gt(1)):
        caption += " Means over seeds, bars one sd."
    yield Picture("pairs", bars.draw(drawn), drawn, text, caption + _laid_over(drawn))


def _sensitivity(frame: pd.DataFrame, knob: str) -> Iterable[Picture]:
    drawn = sensitivity.points(frame, knob)
    if drawn.empty:
        return
    labels = goals.listed(column.label for column in overlay.compared(drawn))
    text = f"{labels} with GRU over {knob}, a line a method; {_csv(knob)}"
    sentences = [f"Methods with GRU over {knob}."]
    if "runs" in set(drawn["source"]):
        other = sensitivity.OTHER[knob]
        sentences.append(f"{other} is that of each method's chosen setting, which is framed; bars one sd over seeds.")
    if "none" in set(drawn["setting"]):
        sentences.append({"tau": "none: no clipping.", "gamma": "none: no moving average, as gamma = 1."}[knob])
    caption = " ".join(sentences)
    yield Picture(knob, sensitivity.draw(drawn), drawn, text, caption + _laid_over(drawn))


def _heat(frame: pd.DataFrame) -> Iterable[Picture]:
    drawn = heatmap.points(frame)
    grid = drawn.groupby(["backbone", "split", "method"])[["gamma", "tau"]].transform("nunique")
    drawn = drawn.loc[(grid["gamma"] > 1) & (grid["tau"] > 1)]
    for (_, split), here in drawn.groupby(["backbone", "split"]):
        stem = f"heat-{split}"
        text = f"A heat map of tau and gamma for each method on {split}; {_csv(stem)}"
        caption = f"tau and gamma on {split_label(str(split))}; brighter is better, hatched was not run"
        caption += ", framed is the chosen setting." if "runs" in set(here["source"]) else "."
        yield Picture(stem, heatmap.draw(here), here.reset_index(drop=True), text, caption)


def _shares(frame: pd.DataFrame) -> Iterable[Picture]:
    drawn = shares.points(frame)
    if any(drawn["target"].notna()):
        text = f"Forget quality over the share of utility that UWC keeps, alone and with GRU; {_csv('uwc')}"
        caption = "FQ of mixtures that keep the same share of the original's MU (UWC); higher forgets better."
        yield Picture("uwc", shares.draw(drawn), drawn, text, caption + _laid_over(drawn))


def _training(measured: pd.DataFrame) -> Iterable[Picture]:
    """Figures 1 and 7 of the paper, a picture a split."""
    along, turned = training.points(measured), angles.points(measured)
    for split in sorted(along["split"].unique()):
        stem = f"dynamics-{split}"
        here = along.loc[along["split"] == split].reset_index(drop=True)
        text = f"Cosine of unlearning and retain gradient, and retain risk, along training on {split}; {_csv(stem)}"
        yield Picture(stem, training.draw(here, split), here, text, _measured(here))
    for split in sorted(turned["split"].unique()):
        stem = f"angles-{split}"
        here = turned.loc[turned["split"] == split].reset_index(drop=True)
        text = f"Angles of unlearning and retain gradient before and after rectification on {split}; {_csv(stem)}"
        caption = (
            "Above 90 degrees a step works against what is to be retained. Pre-rect. and Post-rect. are against GRU's "
            "moving average of the retain gradient, Orig. (the method alone, where it was observed) against a retain "
            "gradient on other rows."
        )
        caption += MEANS * steps.ends_early(here, ["split", "method", "line"])
        yield Picture(stem, angles.draw(here, split), here, text, caption)


def _measured(drawn: pd.DataFrame) -> str:
    """Return the caption of figure 1, which says what was measured how."""
    caption = "Before rectification, of the chosen settings. g_u: the unlearning gradient, g_r: the retain gradient; "
    caption += "risk: the NLL of retain rows."
    kinds = set(drawn["measured"])
    if training.OBSERVED in kinds:
        caption += " Measured on retain rows that no step uses, every K steps (observe=K)."
    if training.STEPPED in kinds:
        who = "Lines that were not observed are" if training.OBSERVED in kinds else "Measured"
        caption += f" {who} of the rectified steps themselves, the cosine against the moving average."
    if "none" not in set(drawn["rectifier"]):
        caption += " Methods alone measure neither: run the sweep with --set observe=K."
    return caption + MEANS * steps.ends_early(drawn, steps.LINE)
