"""The report's parts that the paper has too: its tables filled from runs, and its figures, the paper's own beside."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from analysis.figures import catalog
from analysis.load.sweeps import Sweep
from analysis.page import paper_report
from analysis.page.sections import Given, Section, Shown
from analysis.stats import steps
from analysis.tables import choose, tidy

TRAINING = ("dynamics", "angles")
"""What the names of figures over training steps begin with."""
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


def write(given: Given, sweep: Sweep, source: Source) -> list[Section]:
    """Write into `tables/` and `figures/` what the sweep has of the paper's, and return it in the page's order.

    With both sources all its tables are on the page; without, those that no other part of the report has.
    """
    both = source == Source.BOTH
    frame = tidy.from_runs(given.runs, given.models, given.rule)
    sheets = choose.of(frame, given.runs, given.models, given.rule, sweep.command, both)
    for sheet in sheets:
        paper_report.save(sheet, given.folder / "tables")
    shown = [sheet for sheet in sheets if both or not (sheet.name in ON_THE_PAGE or sheet.layout.targets)]
    measured = steps.load(given.runs, given.models, given.rule, given.store)
    drawn = [given.picture(one) for one in catalog.of(frame, given.runs, measured, both)]
    along, rest = (tuple(one for one in drawn if one.stem.startswith(TRAINING) == wanted) for wanted in (True, False))
    compared = any(sheet.numbers["paper"].notna().any() for sheet in shown)
    tables = tuple(Shown(sheet.table, title=sheet.title) for sheet in shown)
    found = [
        Section("In the paper's layout", tables, text=BESIDE if compared else ""),
        Section("Without and with GRU", figures=rest, text=APART if both and not _of_both(rest) else ""),
        Section("Along training", figures=along),
    ]
    return [section for section in found if section.tables or section.figures]


def _of_both(drawn: Iterable[catalog.Picture]) -> bool:
    """Return whether a figure has numbers of the paper."""
    return any("paper" in set(one.points["source"]) for one in drawn)
