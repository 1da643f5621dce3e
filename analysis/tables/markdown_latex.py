"""Printed tables: cells, rows, heads and notes, as Markdown and LaTeX; pages have them as HTML (page/templates)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pandas as pd

BOLD = {
    "method": "Bold: the best of a method's rows in a column, as printed; a utility of 0 never is.",
    "column": "Bold: the best method of a column, as printed; a utility of 0 never is.",
}
"""What tables say of their bold numbers, by whom these compete with."""
TEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "%_&#"}
    | {"±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "—": "--", "‖": r"$\|$"}
    | {"τ": r"$\tau$", "γ": r"$\gamma$", "≥": r"$\geq$"}
    | {"θ": r"$\theta$", "†": r"$\dagger$", "‡": r"$\ddagger$", "§": r"\S{}", "¶": r"\P{}"}
)

CODE = re.compile(r"`([^`]*)`")
"""A command in a note."""


@dataclass(frozen=True)
class Cell:
    """A printed number; `sd` is empty with fewer than two seeds, `marks` are signs that the table's notes explain.

    `n`: how many seeds, where the notes do not say it for all; `beside`: what stands in small type under the number.
    """

    text: str
    sd: str = ""
    bold: bool = False
    marks: str = ""
    n: str = ""
    beside: str = ""

    @property
    def spread(self) -> str:
        """Return ` ± SD (n = N)`, or what there is of it."""
        return (f" ± {self.sd}" if self.sd else "") + (f" (n = {self.n})" if self.n else "")


@dataclass(frozen=True)
class Row:
    """A printed row; `first` opens a new group (a rule above it), `under` is a method's row with GRU or clipping.

    `more`: what stands between the label and the cells, under the table's further `stubs`.
    """

    label: str
    first: bool
    under: bool
    more: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()


class Heading(NamedTuple):
    """A text over `width` columns, in Markdown `plain` if given; empty where a level has nothing to say of them."""

    text: str
    width: int = 1
    plain: str = ""


@dataclass(frozen=True)
class Table:
    """A table as printed. `leaves`: heads of single columns of numbers; `levels`: heads above them, from the top.

    `stubs`: the heads of the columns that hold no numbers. `notes` stand below the table, each opened by its sign.
    """

    leaves: tuple[str, ...]
    levels: tuple[tuple[Heading, ...], ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ("Method",)


def to_markdown(table: Table) -> str:
    """Return a pipe table, heads of all levels in one line, and its notes as paragraphs."""
    spread = [[head.plain or head.text for head in level for _ in range(head.width)] for level in table.levels]
    heads = [" ".join(filter(None, texts)) for texts in zip(*spread, table.leaves, strict=True)]
    rows = [[row.label, *row.more, *map(_markdown, row.cells)] for row in table.rows]
    grid = pd.DataFrame(rows, columns=[*table.stubs, *heads])
    align = ["left"] * len(table.stubs) + ["right"] * len(heads)
    text = grid.to_markdown(index=False, disable_numparse=True, colalign=align if table.rows else None)
    return "\n".join([f"{text}\n", *(f"{note}\n" for note in table.notes)])


def _markdown(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.bold else cell.text
    return text + cell.marks + cell.spread + (f" ({cell.beside})" if cell.beside else "")


def to_latex(table: Table) -> str:
    """Return a booktabs tabular in the layout of the paper's tables, and its notes below it."""
    delimiters: dict[str, Any] = {"block_start_string": "<%", "block_end_string": "%>", "comment_start_string": "<#"}
    delimiters |= {"variable_start_string": "<<", "variable_end_string": ">>"}
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, trim_blocks=True, undefined=jinja2.StrictUndefined, **delimiters)
    environment.filters["tex"] = lambda text: CODE.sub(r"\\texttt{\1}", text.translate(TEX))
    text = environment.get_template("table.tex.j2").render(table=table)
    return "\n".join(filter(None, text.splitlines())) + "\n"
