"""The report's parts, in the page's order: each writes its tables and figures, and says what stands on the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from analysis.figures import catalog, uwc
from analysis.figures.catalog import Picture
from analysis.figures.style import save_figure
from analysis.load.goals import Goals, goals_of_runs
from analysis.stats import calibration, hypervolume, seeds, strengths, tidy
from analysis.tables import choose, layouts, lists
from analysis.tables.format import Table
from analysis.tables.layout import Layout
from analysis.tables.render import make_sheet
from trainables.config.settings import Selection
from trainables.storage.base import Storage

WHOLE = "Mixtures are measured on all evaluation rows: those that the settings were chosen on, and the others."


@dataclass(frozen=True)
class TableItem:
    """A table of the page, as printed or a frame of texts; what stands above it (one of several) and under it."""

    body: Table | pd.DataFrame
    caption: str = ""
    title: str = ""

    @property
    def is_printed(self) -> bool:
        """Return whether it is a printed table, with heads of several levels."""
        return isinstance(self.body, Table)


@dataclass(frozen=True)
class Section:
    """A part of the page: a text, then tables, then figures."""

    title: str
    tables: tuple[TableItem, ...] = ()
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

    @cached_property
    def goals(self) -> Goals:
        """Return what the sweep's benchmark is judged by."""
        return goals_of_runs(self.runs)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Return the sweep's results as one long frame."""
        return tidy.from_runs(self.runs, self.models, self.rule)

    def save_table(self, layout: Layout, frame: pd.DataFrame) -> Table:
        """Write a tidy frame in this layout as tables/NAME.csv, .md and .tex, and return it as printed."""
        sheet = make_sheet(layout, frame)
        sheet.save(self.folder / "tables")
        return sheet.table

    def save_picture(self, picture: Picture) -> Picture:
        """Write a figure as figures/STEM.pdf, .svg and .png, its points as .csv, and return it."""
        save_figure(picture.figure, self.folder / "figures", picture.stem, picture.points)
        return picture

    def save_frame(self, stem: str, frame: pd.DataFrame) -> None:
        """Write tables/STEM.csv."""
        frame.to_csv(self.folder / "tables" / f"{stem}.csv", index=False, lineterminator="\n")


def write_sections(given: Given) -> list[Section]:
    """Write into `tables/` and `figures/` what the sweep has of all parts, and return them in the page's order."""
    (given.folder / "tables").mkdir(parents=True, exist_ok=True)
    return [section for write in PARTS if (section := write(given))]


def write_main(given: Given) -> Section:
    layout = layouts.main_layout(given.runs, given.models, given.rule)
    table = given.save_table(layout, given.frame)
    caption = (
        f"{given.goals.explanation} Original: the target model, before unlearning"
        f"{'; Retrain: the retain model' if 'retain' in layout.references else ''}. Means over seeds ± sd; —: no "
        "result."
    )
    return Section("Main table", (TableItem(table, caption),))


def _write_tradeoff(given: Given) -> Section:
    picture = catalog.draw_tradeoff(given.runs, given.models, given.rule)
    return Section("Trade-off", figures=(given.save_picture(picture),))


def _write_hypervolume(given: Given) -> Section | None:
    if "gru" not in set(given.runs["rectifier.name"]):
        return None
    title = "Area under the Pareto front"
    frame = hypervolume.table(given.runs, given.models, given.goals)
    given.save_frame("hypervolume", frame)
    if frame.empty:
        short = " and ".join(goal.short for goal in given.goals.compared)
        reason = f"Left out: no split has a method with {short} both with and without GRU, and the target model's."
        return Section(title, text=reason)
    caption = (
        f"{hypervolume.explained(given.goals)} Over all settings tried (means over seeds, as the front in the "
        "trade-off's figure) of the methods that were run both ways, not only the chosen ones: more settings cover "
        "more by themselves, so unequal numbers do not compare. A setting that removes no more than the target model "
        "adds nothing."
    )
    return Section(title, (TableItem(lists.list_volumes(frame, given.goals), caption),))


def _write_seeds(given: Given) -> Section | None:
    frame = seeds.table(given.runs, given.models, given.store, given.rule)
    if frame.empty:
        return None
    given.save_frame("seeds", frame)
    item = TableItem(lists.list_seeds(frame, given.runs), lists.explain_seeds(frame, given.runs))
    return Section("Every seed", (item,))


def _write_retain_free(given: Given) -> Section | None:
    """Task vectors, which are over FQ and MU: of sweeps on TOFU only."""
    if given.goals.benchmark != "tofu" or not lists.has_task_vectors(given.runs):
        return None
    points = strengths.strength_points(given.runs, given.models, given.rule)
    pictures = [given.save_picture(catalog.draw_strengths(points))] if any(points["kind"] == "strength") else []
    frame = tidy.from_runs(choose.retain_free_trials(given.runs), given.models, given.rule)
    table = given.save_table(layouts.RETAIN_FREE, frame)
    return Section("Without retain data", (TableItem(table),), tuple(pictures))


def _write_calibration(given: Given) -> Section | None:
    """UWC, which is over FQ and MU: of sweeps on TOFU only."""
    if given.goals.benchmark != "tofu" or calibration.chosen_trials(given.runs, given.models, given.rule).empty:
        return None
    points = uwc.mixture_points(given.runs, given.models, given.rule)
    pictures = tuple(given.save_picture(picture) for picture in catalog.draw_mixtures(points))
    layout = replace(layouts.UWC, notes=(*layouts.UWC.notes, *[WHOLE] * given.rule.halves))
    return Section(layout.caption, (TableItem(given.save_table(layout, given.frame)),), pictures)


PARTS: tuple[Callable[[Given], Section | None], ...] = (
    write_main,
    _write_tradeoff,
    _write_hypervolume,
    _write_seeds,
    _write_retain_free,
    _write_calibration,
)
"""In the page's order. A new part is a function here; None: the sweep has nothing of it."""
