"""Tables of invented sweeps as reports have them, for tests."""

import pandas as pd

from analysis.stats import tidy
from analysis.stats.selection import DEFAULT
from analysis.tables import choose, layouts
from analysis.tables.format import Row, Table
from analysis.tables.render import Sheet, make_sheet
from trainables.config.settings import Selection


def main_sheet(runs: pd.DataFrame, models: pd.DataFrame, rule: Selection = DEFAULT) -> Sheet:
    return make_sheet(layouts.main_layout(runs, models, rule), tidy.from_runs(runs, models, rule))


def retain_free_sheet(runs: pd.DataFrame, models: pd.DataFrame) -> Sheet:
    return make_sheet(layouts.RETAIN_FREE, tidy.from_runs(choose.retain_free_trials(runs), models))


def uwc_sheet(runs: pd.DataFrame, models: pd.DataFrame) -> Sheet:
    return make_sheet(layouts.UWC, tidy.from_runs(runs, models))


def paper_sheets(runs: pd.DataFrame, models: pd.DataFrame, command: str = "", beside: bool = False) -> list[Sheet]:
    return choose.make_sheets(tidy.from_runs(runs, models), runs, models, command=command, beside=beside)


def find_sheet(sheets: list[Sheet], name: str) -> Sheet:
    return next(sheet for sheet in sheets if sheet.name == name)


def find_row(table: Table, label: str, below: int = 0) -> Row:
    """Return the row so many lines below the one with this label."""
    return table.rows[[row.label for row in table.rows].index(label) + below]
