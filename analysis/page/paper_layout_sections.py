"""The report's parts that the paper has too: its tables filled from runs, and its figures, the paper's own beside."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from analysis import paper
from analysis.figures import catalog
from analysis.figures.catalog import Picture
from analysis.figures.style import save_figure
from analysis.page.detail_sections import Report, Section, TableItem
from analysis.stats import tidy, training_curves
from analysis.tables import detail_tables, paper_tables
from analysis.tables.paper_tables import FillingSweep, Sheet
from analysis.tables.table_definitions import LAYOUTS
from trainables.storage.sweep_file import SweepFile

ON_THE_PAGE = ("tofu_main", "tofu_retain_free", "wmdp", "muse")
"""Tables whose numbers a report of runs has in its other sections already; UWC's are too."""
BESIDE = "Under each number the paper's, and the difference to it; a dash where the paper has none."
NUMBERED = f"Numbered and named as in {paper.CITATION}. "
APART = (
    "The paper has no numbers of this model, split and dialect, so none are drawn here: "
    "--source paper shows what it has of others."
)


class Source(StrEnum):
    """Whose numbers a report shows."""

    RUNS = "runs"
    PAPER = "paper"
    BOTH = "both"


def write_parts(
    sweeps: Mapping[str, FillingSweep], folder: Path, both: bool, stem: str = "", every: bool = True
) -> tuple[list[Sheet], tuple[Picture, ...]]:
    """Write into `tables/` and `figures/` what sweeps of one benchmark, by their labels, have of the paper's.

    `stem` begins the names of the figures' files; `every`: with those that repeat others.
    """
    sheets = paper_tables.make_sheets(sweeps, both)
    for sheet in sheets:
        sheet.save(folder / "tables")
    frames = {
        kind: tidy.join(
            {label: one.frame for label, one in sweeps.items()},
            {name for table in tables for name in LAYOUTS[table].sweeps.values()},
        )
        for kind, tables in catalog.PAPER.items()
    }
    beside = both and all(tidy.in_paper_dialect(one.results.runs) for one in sweeps.values())
    drawn = catalog.draw_sweeps(frames, beside, several=len(sweeps) > 1)
    repeated = set() if every else _find_repeated(drawn)
    pictures = [one._replace(stem=f"{stem}{one.stem}") for one in drawn if one.stem not in repeated]
    for picture in pictures:
        save_figure(picture.figure, folder / "figures", picture.stem, picture.points)
    return sheets, tuple(pictures)


def write_sections(report: Report, sweep: SweepFile, source: Source) -> list[Section]:
    """Write into `tables/` and `figures/` what the sweep has of the paper's, and return it in the page's order.

    With both sources all its tables are on the page; without, those that no other part of the report has.
    """
    steps = training_curves.load_steps(report.results, report.store)
    along = tuple(map(report.save_picture, catalog.draw_training(steps)))
    both = source == Source.BOTH
    every = both or bool(paper_tables.tables_of_sweep(sweep.name))
    filling = FillingSweep(report.results, report.frame)
    made, others = write_parts({sweep.label: filling}, report.folder, both, every=every)
    drawn = {None, *(one.stem for one in others)}
    own = [sheet for sheet in made if not (sheet.name in ON_THE_PAGE or sheet.layout.mixed)]
    on_page = made if both else [sheet for sheet in own if every or sheet.layout.axis in drawn]
    compared = any(sheet.numbers["paper"].notna().any() for sheet in on_page)
    apart = both and not any("paper" in set(one.points["source"]) for one in others)
    tables = tuple(TableItem(sheet.table, title=sheet.title) for sheet in on_page)
    peers = detail_tables.list_open_unlearning(report.results)
    beside = (TableItem(peers, detail_tables.OPEN_UNLEARNING_CAPTION),) if both and len(peers) else ()
    found = [
        Section("Beside open-unlearning's numbers", beside),
        Section("In the paper's layout", tables, text=f"{NUMBERED}{BESIDE * compared}"),
        Section("In the paper's figures", figures=others, text=APART if apart else ""),
        Section("Along training", figures=along),
    ]
    return [section for section in found if section.tables or section.figures]


def _find_repeated(drawn: list[Picture]) -> set[str]:
    """Return the pictures that would show the trials of another part of the page once more.

    Bars are the trade-off's arrows and the main table; over two values of gamma and tau the heat map says it all.
    """
    maps = [one.points for one in drawn if one.stem.startswith("heat-")]
    small = bool(maps) and all(max(points["gamma"].nunique(), points["tau"].nunique()) < 3 for points in maps)
    return {"pairs", "gamma", "tau"} if small else {"pairs"}
