"""Tables of invented sweeps as reports have them, for tests."""

from analysis.stats import tidy
from analysis.stats.results import Results
from analysis.tables import choose, layouts
from analysis.tables.format import Row, Table
from analysis.tables.render import Sheet, make_sheet


def main_sheet(results: Results) -> Sheet:
    return make_sheet(layouts.main_layout(results), tidy.from_runs(results))


def retain_free_sheet(results: Results) -> Sheet:
    free = results.with_runs(choose.retain_free_trials(results.runs))
    return make_sheet(layouts.RETAIN_FREE, tidy.from_runs(free))


def uwc_sheet(results: Results) -> Sheet:
    return make_sheet(layouts.UWC, tidy.from_runs(results))


def paper_sheets(results: Results, command: str = "", beside: bool = False) -> list[Sheet]:
    return choose.make_sheets(tidy.from_runs(results), results, command, beside)


def find_sheet(sheets: list[Sheet], name: str) -> Sheet:
    return next(sheet for sheet in sheets if sheet.name == name)


def find_row(table: Table, label: str, below: int = 0) -> Row:
    """Return the row so many lines below the one with this label."""
    return table.rows[[row.label for row in table.rows].index(label) + below]
