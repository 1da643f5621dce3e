"""The report's parts, in the page's order: each writes its tables and figures, and says what stands on the page."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.figures import strengths, style, tradeoff, uwc
from analysis.figures.catalog import Picture
from analysis.load import goals
from analysis.load.goals import Goals
from analysis.stats import calibration, hypervolume, seeds, selection
from analysis.tables import format as tables_format
from analysis.tables import main, retain_free
from analysis.tables.format import number
from trainables.config.settings import Selection
from trainables.storage.base import Storage

WHOLE = "Mixtures are measured on all evaluation rows: those that the settings were chosen on, and the others."


@dataclass(frozen=True)
class Shown:
    """A table of the page, as printed or a frame of texts; what stands above it (one of several) and under it."""

    body: tables_format.Table | pd.DataFrame
    caption: str = ""
    title: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page: a text, then tables, then figures."""

    title: str
    tables: tuple[Shown, ...] = ()
    figures: tuple[Picture, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Given:
    """What parts are made from: the report's folder, the sweep's trials, models and rule, and the storage."""

    folder: Path
    runs: pd.DataFrame
    models: pd.DataFrame
    rule: Selection
    store: Storage

    @property
    def what(self) -> Goals:
        """Return what the sweep's benchmark is judged by."""
        return goals.of(self.runs)

    def table(self, stem: str, frame: pd.DataFrame, printed: tables_format.Table) -> tables_format.Table:
        """Write a table as tables/STEM.csv, .md and .tex, and return it as printed."""
        texts = {
            "csv": main.to_csv(frame),
            "md": tables_format.to_markdown(printed),
            "tex": tables_format.to_latex(printed),
        }
        for kind, text in texts.items():
            (self.folder / "tables" / f"{stem}.{kind}").write_text(text, encoding="utf-8")
        return printed

    def picture(self, drawn: Picture) -> Picture:
        """Write a figure as figures/STEM.pdf, .svg and .png, its points as .csv, and return it."""
        style.save(drawn.figure, self.folder / "figures", drawn.stem, drawn.points)
        return drawn

    def frame(self, stem: str, frame: pd.DataFrame) -> None:
        """Write tables/STEM.csv."""
        frame.to_csv(self.folder / "tables" / f"{stem}.csv", index=False, lineterminator="\n")


def write(given: Given) -> list[Section]:
    """Write into `tables/` and `figures/` what the sweep has of all parts, and return them in the page's order."""
    (given.folder / "tables").mkdir(parents=True, exist_ok=True)
    return [section for make in PARTS if (section := make(given))]


def _main(given: Given) -> Section:
    frame = main.main_table(given.runs, given.models, given.rule)
    rule = selection.rule_text(given.what, given.rule)
    printed = given.table("main", frame, main.printed(frame, given.what, notes=(tables_format.BOLD["method"], rule)))
    retain = any(row.label == main.REFERENCES["retain"] for row in printed.rows)
    caption = (
        f"{goals.explained(given.what)} Original: the target model, before unlearning"
        f"{'; Retrain: the retain model' if retain else ''}. Means over seeds ± sd; —: no result."
    )
    return Section("Main table", (Shown(printed, caption),))


def _tradeoff(given: Given) -> Section:
    what = given.what
    points = tradeoff.tradeoff_points(given.runs, given.models, given.rule)
    figure = tradeoff.tradeoff(points, what, given.rule)
    text = f"{what.x.name} against {what.y.name}, a panel a split; the points are in figures/tradeoff.csv"
    turned = ": x runs from high to low" if what.x.best == "lowest" else ""
    caption = (
        f"Up and to the right is better{turned}. Faint: every evaluated trial. Bold: each method's chosen setting "
        "(mean over seeds, bars one sd), hollow without GRU, full with it; the arrow shows what GRU changes. Grey "
        "line: Pareto front of all settings tried, each the mean over its seeds as in the tables, without those that "
        "are no better than the original model on either goal."
    )
    return Section("Trade-off", figures=(given.picture(Picture("tradeoff", figure, points, text, caption)),))


def _hypervolume(given: Given) -> Section | None:
    what = given.what
    if "gru" not in set(given.runs["rectifier.name"]):
        return None
    frame = hypervolume.table(given.runs, given.models, what)
    given.frame("hypervolume", frame)
    if frame.empty:
        short = " and ".join(goal.short for goal in what.compared)
        reason = f"Left out: no split has a method with {short} both with and without GRU, and the target model's."
        return Section("Area under the Pareto front", text=reason)
    rows = [_volumes(row, what) for row in frame.to_dict("records")]
    caption = (
        f"{hypervolume.explained(what)} Over all settings tried (means over seeds, as the front in the trade-off's "
        "figure) of the methods that were run both ways, not only the chosen ones: more settings cover more by "
        "themselves, so unequal numbers do not compare. A setting that removes no more than the target model adds "
        "nothing."
    )
    return Section("Area under the Pareto front", (Shown(pd.DataFrame(rows, dtype="str"), caption),))


def _volumes(row: dict[Hashable, Any], what: Goals) -> dict[str, str]:
    without, with_gru = row["volume_none"], row["volume_gru"]
    return {
        "Split": tables_format.split_label(row["split"]),
        "Methods": f"{row['methods']}",
        f"From {hypervolume.axis(what)}": number(row["reference"]),
        "Area without GRU": number(without),
        "settings": f"{row['settings_none']}",
        "Area with GRU": number(with_gru),
        "settings ": f"{row['settings_gru']}",
        "Change": f"{with_gru / without - 1:+.1%}" if without else tables_format.DASH,
    }


def _seeds(given: Given) -> Section | None:
    frame = seeds.table(given.runs, given.models, given.store, given.rule)
    if frame.empty:
        return None
    given.frame("seeds", frame)
    return Section("Every seed", (Shown(seeds.printed(frame, given.runs), seeds.caption(frame, given.runs)),))


def _retain_free(given: Given) -> Section | None:
    """Task vectors, which are over FQ and MU: of sweeps on TOFU only."""
    if given.what.benchmark != "tofu" or not main.task_vectors(given.runs):
        return None
    frame = retain_free.table(given.runs, given.models, given.rule)
    drawn = strengths.points(given.runs, given.models, given.rule)
    pictures = []
    if any(drawn["kind"] == "strength"):
        text = (
            "Forget quality and model utility over the strengths of TRU and TV; the points are in figures/strength.csv"
        )
        caption = (
            "A column a method over its strength, and both over how far they moved the weights. Means over seeds, bars "
            "one sd; lines join measured strengths. Framed: the chosen strength. Lines across: the original and the "
            "retain model."
        )
        pictures.append(given.picture(Picture("strength", strengths.draw(drawn), drawn, text, caption)))
    printed = given.table("retain_free", frame, retain_free.printed(frame))
    return Section("Without retain data", (Shown(printed),), tuple(pictures))


def _calibration(given: Given) -> Section | None:
    """UWC, which is over FQ and MU: of sweeps on TOFU only."""
    if given.what.benchmark != "tofu" or not len(calibration.chosen_trials(given.runs, given.models, given.rule)):
        return None
    frame = calibration.table(given.runs, given.models, given.rule)
    drawn = uwc.points(given.runs, given.models, given.rule)
    pictures, splits = [], sorted(drawn["split"].unique())
    caption = (
        "A row a method, a line a seed of its chosen setting, alone and w/ GRU. Large marks: the targets' "
        "mixtures. In the right column, of two points at equal MU the one further right forgets better."
    )
    for split in splits:
        stem = f"uwc-{split}"
        here = drawn.loc[drawn["split"] == split]
        text = f"Forget quality and model utility of mixtures on {split}; the points are in figures/{stem}.csv"
        under = caption if split == splits[-1] else ""
        pictures.append(given.picture(Picture(stem, uwc.draw(drawn, split), here, text, under)))
    printed = calibration.printed(frame)
    if given.rule.halves:
        printed = replace(printed, notes=(*printed.notes, WHOLE))
    return Section("At equal utility (UWC)", (Shown(given.table("uwc", frame, printed)),), tuple(pictures))


PARTS: tuple[Callable[[Given], Section | None], ...] = (
    _main,
    _tradeoff,
    _hypervolume,
    _seeds,
    _retain_free,
    _calibration,
)
"""In the page's order. A new part is a function here; None: the sweep has nothing of it."""
