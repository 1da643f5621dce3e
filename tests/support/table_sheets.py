"""Tables of invented sweeps as reports have them, for tests."""

from analysis.stats.sweep_results import Results
from analysis.tables import paper_tables, table_definitions
from analysis.tables.markdown_latex import Cell, Table
from analysis.tables.paper_tables import FilledTable, fill_table


def main_sheet(results: Results) -> FilledTable:
    """Return a sweep's main table."""
    return fill_table(table_definitions.main_layout(results), results.tidy_frame)


def paper_sheets(results: Results, with_paper: bool = False) -> list[FilledTable]:
    return paper_tables.fill_paper_tables({"sweep": results}, with_paper)


def find_row(table: Table, label: str, below: int = 0) -> list[Cell]:
    """Return the cells of the row so many lines below the one with this label."""
    return list(table.cells.iloc[list(table.cells.index).index(label) + below])
