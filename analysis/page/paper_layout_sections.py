"""The report's parts that the paper has too: its tables filled from runs, and its figures, the paper's own beside."""

from __future__ import annotations

from enum import StrEnum

from analysis.figures import catalog
from analysis.page.sections import Report, Section, TableItem
from analysis.stats import training_curves
from analysis.tables import paper_tables
from trainables.storage.sweep_file import SweepFile

ON_THE_PAGE = ("tofu_main", "tofu_retain_free", "wmdp", "muse")
"""Tables whose numbers a report of runs has in its other sections already; UWC's are too."""
BESIDE = "Under each number the paper's, and the difference to it; a dash where the paper has none."
APART = (
    "The paper has no numbers of this model, split and dialect, so none are drawn here: "
    "--source paper shows what it has of others."
)


class Source(StrEnum):
    """Whose numbers a report shows."""

    RUNS = "runs"
    PAPER = "paper"
    BOTH = "both"


def write_sections(report: Report, sweep: SweepFile, source: Source) -> list[Section]:
    """Write into `tables/` and `figures/` what the sweep has of the paper's, and return it in the page's order.

    With both sources all its tables are on the page; without, those that no other part of the report has.
    """
    both = source == Source.BOTH
    made = paper_tables.make_sheets(report.frame, report.results, sweep.command, both)
    for sheet in made:
        sheet.save(report.folder / "tables")
    on_page = [sheet for sheet in made if both or not (sheet.name in ON_THE_PAGE or sheet.layout.mixed)]
    drawn = catalog.draw_sweep(report.frame, report.results.runs, both)
    # The bars of runs alone are the trade-off's arrows and the main table once more.
    others = tuple(report.save_picture(one) for one in drawn if both or one.stem != "pairs")
    along = tuple(
        map(report.save_picture, catalog.draw_training(training_curves.load_steps(report.results, report.store)))
    )
    compared = any(sheet.numbers["paper"].notna().any() for sheet in on_page)
    apart = both and not any("paper" in set(one.points["source"]) for one in others)
    tables = tuple(TableItem(sheet.table, title=sheet.title) for sheet in on_page)
    found = [
        Section("In the paper's layout", tables, text=BESIDE if compared else ""),
        Section("In the paper's figures", figures=others, text=APART if apart else ""),
        Section("Along training", figures=along),
    ]
    return [section for section in found if section.tables or section.figures]
