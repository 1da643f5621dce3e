"""The sections of a report on runs, in the page's order: each writes its files and returns what the page shows.

The verdict, the lists of trials and failures and the page itself are analysis/report.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.figures import catalog, equal_utility
from analysis.figures.catalog import Picture
from analysis.figures.style import save_figure
from analysis.labels import OTHER_REFERENCES, REFERENCES
from analysis.load.goal_columns import full_title
from analysis.prose.which_rectifier import explain_rectifiers
from analysis.stats import attacks, hypervolume, rectifier_comparison, task_vector_strength, tidy
from analysis.stats.importance import LEAST_SETTINGS, list_points, measure_importance
from analysis.stats.sweep_results import Results
from analysis.tables import detail_tables, paper_tables, rectifier_tables, table_definitions
from analysis.tables.layout import Layout
from analysis.tables.markdown_latex import Table
from analysis.tables.paper_tables import make_sheet
from trainables.storage.folder_storage import Storage

ALL_ROWS_NOTE = "Mixtures are measured on all evaluation rows: those that the settings were chosen on, and the others."
MOST_PICTURES = 6
"""Studies whose settings are drawn; importance.csv has all."""


@dataclass(frozen=True)
class TableItem:
    """A table of the page: a printed one, or a frame of texts.

    The title stands above it, where its section has several tables, and the caption under it.
    """

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
class Report:
    """A report's folder, and what its parts are made from: the sweep's results and their storage."""

    folder: Path
    results: Results
    store: Storage

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Return the sweep's results as one long frame."""
        return tidy.from_runs(self.results)

    @cached_property
    def attacks(self) -> pd.DataFrame:
        """Return what attacks on the chosen trials brought back: `attacks.mean_shares`."""
        return attacks.mean_shares(self.results)

    @cached_property
    def rectifiers(self) -> rectifier_comparison.Comparison | None:
        """Return what rectifiers change; None where no objective has two of them and none: the verdict is on one."""
        studies = self.results.chosen.groupby(["benchmark.split", "method"])["rectifier.name"]
        several = any("none" in set(names) and len(set(names)) > 2 for _, names in studies)
        return rectifier_comparison.compare(self.results) if several else None

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
        """Write tables/STEM.csv, texts quoted that a spreadsheet would take for a formula."""
        texts = frame.select_dtypes(include=["object", "str"]).columns
        frame = frame.assign(**{str(name): frame[name].map(_quote_formula) for name in texts})
        frame.to_csv(self.folder / "tables" / f"{stem}.csv", index=False, lineterminator="\n")


def _quote_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def write_sections(report: Report) -> list[Section]:
    """Write tables/ and figures/ of all sections that the sweep has something for; return these in the page's order."""
    return [section for write in SECTION_WRITERS if (section := write(report))]


def write_main(report: Report) -> TableItem:
    """Write the main table, which stands on the page's first screen."""
    layout = table_definitions.main_layout(report.results)
    table = report.save_table(layout, report.frame)
    roles = set(report.results.models["role"])
    others = "".join(f"; {REFERENCES[role]}: {text}" for role, text in OTHER_REFERENCES.items() if role in roles)
    caption = (
        f"{report.results.goals.explanation} Original: the target model, before unlearning{others}. Means over seeds "
        "± sd; —: no result."
    )
    return TableItem(table, caption)


def _write_hypervolume(report: Report) -> Section | None:
    if "gru" not in set(report.results.runs["rectifier.name"]):
        return None
    title = "Area under the Pareto front"
    frame = hypervolume.measure_hypervolume(report.results)
    report.save_frame("hypervolume", frame)
    if frame.empty:
        short = " and ".join(goal.short for goal in report.results.goals.compared)
        reason = f"Left out: no split has a method with {short} both with and without GRU, and the target model's."
        return Section(title, text=reason)
    caption = (
        f"{hypervolume.describe_hypervolume(report.results.goals)} Over all settings tried (means over seeds, as the "
        "front in the trade-off's figure) of the methods that were run both ways, not only the chosen ones: more "
        "settings cover more by themselves, so unequal numbers do not compare. A setting that removes no more than "
        "the target model adds nothing."
    )
    return Section(title, (TableItem(detail_tables.list_volumes(frame, report.results.goals), caption),))


def _write_importance(report: Report) -> Section | None:
    """Studies with enough settings to say which of them matter; pictures of those that varied several."""
    shares, goals = measure_importance(report.results.runs), report.results.goals
    if shares.empty:
        return None
    report.save_frame("importance", shares)
    told = (
        "Share of each setting in what tells the best quarter of a study's settings in a goal from all of them "
        "(PED-ANOVA, arXiv 2304.10255). It says what to vary next; in which direction is in the pictures. "
        f"Studies with fewer than {LEAST_SETTINGS} settings are left out."
    )
    pictures = []
    for study, points in list_points(report.results.runs):
        own = shares.loc[(shares[list(study)] == pd.Series(study)).all(axis=1)]
        if own["setting"].nunique() > 1 and len(pictures) < MOST_PICTURES:
            pictures.append(report.save_picture(catalog.draw_slices(points, goals, own)))
    table = TableItem(detail_tables.list_importance(shares, goals), told)
    return Section("Which setting matters", (table,), tuple(pictures))


def _write_rectifiers(report: Report) -> Section | None:
    """Every rectifier against none, where there are several."""
    comparison = report.rectifiers
    if comparison is None or comparison.differences.empty:
        return None
    report.save_frame("rectifiers", comparison.differences.merge(comparison.costs, on=["split", "method", "rectifier"]))
    report.save_frame("rectifier_ranks", comparison.ranks)
    found = [(goal, rectifier_tables.list_rectifiers(comparison, goal)) for goal in comparison.ranked]
    items = [TableItem(frame, title=full_title(goal)) for goal, frame in found]
    items[-1] = replace(items[-1], caption=rectifier_tables.explain_rectifiers(comparison))
    pictures = tuple(report.save_picture(picture) for picture in catalog.draw_rectifiers(comparison))
    return Section("Which rectifier helps", tuple(items), pictures, " ".join(explain_rectifiers(comparison)))


def _write_attacks(report: Report) -> Section | None:
    """What attacks bring back of what the chosen trials removed, where any was attacked."""
    points = report.attacks
    if points.empty:
        return None
    report.save_frame("attacks", points)
    last = attacks.last_steps(points)
    item = TableItem(detail_tables.list_attacks(last), detail_tables.ATTACKS_CAPTION)
    return Section("Does it last", (item,), tuple(map(report.save_picture, catalog.draw_attacks(last))))


def _write_seeds(report: Report) -> Section | None:
    if report.results.seeds.empty:
        return None
    report.save_frame("seeds", report.results.seeds)
    item = TableItem(detail_tables.list_seeds(report.results), detail_tables.explain_seeds(report.results))
    return Section("Every seed", (item,))


def _write_retain_free(report: Report) -> Section | None:
    """Task vectors, which are over FQ and MU: of sweeps on TOFU only."""
    if report.results.goals.benchmark != "tofu" or not detail_tables.has_task_vectors(report.results.runs):
        return None
    points = task_vector_strength.strength_points(report.results)
    counts = points.groupby("method")["strength"].nunique()
    pictures = [report.save_picture(catalog.draw_strengths(points))] if max(counts, default=0) > 1 else []
    free = report.results.with_runs(paper_tables.retain_free_trials(report.results.runs))
    table = report.save_table(table_definitions.RETAIN_FREE, tidy.from_runs(free))
    return Section("Without retain data", (TableItem(table),), tuple(pictures))


def _write_calibration(report: Report) -> Section | None:
    """UWC, which is over FQ and MU: of sweeps on TOFU only."""
    if report.results.goals.benchmark != "tofu" or not any(report.results.chosen_trials["calibrated"].notna()):
        return None
    points = equal_utility.mixture_points(report.results)
    pictures = tuple(report.save_picture(picture) for picture in catalog.draw_mixtures(points))
    notes = (*table_definitions.UWC.notes, *[ALL_ROWS_NOTE] * report.results.rule.halves)
    layout = replace(table_definitions.UWC, notes=notes)
    return Section(layout.caption, (TableItem(report.save_table(layout, report.frame)),), pictures)


SECTION_WRITERS: tuple[Callable[[Report], Section | None], ...] = (
    _write_rectifiers,
    _write_attacks,
    _write_hypervolume,
    _write_importance,
    _write_seeds,
    _write_retain_free,
    _write_calibration,
)
"""In the page's order. A new part is a function here; None: the sweep has nothing of it."""
