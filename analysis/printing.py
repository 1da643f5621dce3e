"""Printed tables, a group of columns a split: cells, rows and notes as Markdown, LaTeX and HTML."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from analysis.selection import DECIMALS

DASH = "—"
TEX = str.maketrans(
    {
        "%": r"\%",
        "_": r"\_",
        "&": r"\&",
        "#": r"\#",
        "±": r"$\pm$",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        "—": "--",
        "‖": r"$\|$",
    }
    | {"θ": r"$\theta$", "†": r"$\dagger$", "‡": r"$\ddagger$", "§": r"\S{}"}
)


@dataclass(frozen=True)
class Cell:
    """A printed number; `sd` is empty with fewer than two seeds, `marks` are signs that the table's notes explain."""

    text: str
    sd: str = ""
    bold: bool = False
    marks: str = ""


@dataclass(frozen=True)
class Row:
    """A printed row; `first` opens a new group (a rule above it), `under` is a method's row with GRU or clipping."""

    label: str
    first: bool
    under: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table as printed: the same `columns` under every split, and `notes` below it, each opened by its sign."""

    splits: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def split_label(split: str) -> str:
    """Return `forget05 (5%)` for TOFU's splits, `own rows` for a person's, other names as they are."""
    match = re.fullmatch(r"forget(\d\d)", split)
    return f"{split} ({int(match[1])}%)" if match else {"own": "own rows"}.get(split, split)


def number(value: float, decimals: int = DECIMALS) -> str:
    """Return a number at printed precision, without the sign of a rounded zero; a dash for NaN."""
    return DASH if pd.isna(value) else f"{round(value, decimals) + 0.0:.{decimals}f}"


def cells(column: pd.DataFrame, best: Literal["highest", "lowest"] | None = "highest") -> list[Cell]:
    """Return the printed cells of rows that compete in one column (stats: mean, sd, n); the best is bold.

    Compared as printed; nothing is bold where fewer than two rows have a number, or where `best` is None.
    """
    texts = [number(value) for value in column["mean"]]
    values = [float(text) for text in texts if text != DASH]
    top = ""
    if best and len(values) > 1:
        top = number(max(values) if best == "highest" else min(values))
    return [
        Cell(text, "" if pd.isna(sd) else number(sd), text == top) for text, sd in zip(texts, column["sd"], strict=True)
    ]


def to_markdown(table: Table) -> str:
    """Return a pipe table, and its notes as paragraphs."""
    header = ["Method", *(f"{split} {name}" for split in table.splits for name in table.columns)]
    rows = [[row.label, *map(_markdown, row.cells)] for row in table.rows]
    return "\n".join([pipe_table(pd.DataFrame(rows, columns=header)), *(f"{note}\n" for note in table.notes)])


def _markdown(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.bold else cell.text
    return text + cell.marks + (f" ± {cell.sd}" if cell.sd else "")


def pipe_table(frame: pd.DataFrame) -> str:
    """Return a frame of texts as a Markdown table."""
    align = ["left"] + ["right"] * (frame.shape[1] - 1)
    return frame.to_markdown(index=False, disable_numparse=True, colalign=align if len(frame) else None) + "\n"


def to_latex(table: Table) -> str:
    """Return a booktabs tabular in the layout of the paper's tables, and its notes below it."""
    width, count = len(table.columns), len(table.splits)
    starts = [2 + width * place for place in range(count)]
    heads = [rf"\multicolumn{{{width}}}{{c}}{{{split_label(split)}}}" for split in table.splits]
    rules = "".join(rf"\cmidrule(lr){{{start}-{start + width - 1}}}" for start in starts)
    lines = [r"% needs \usepackage{booktabs}", rf"\begin{{tabular}}{{l{'r' * width * count}}}", r"\toprule"]
    lines += [_tex(["", *heads]), rules, _tex(["Method", *table.columns * count])]
    for row in table.rows:
        lines += [r"\midrule"] * row.first
        lines.append(_tex([rf"\quad {row.label}" if row.under else row.label, *map(_latex, row.cells)]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip{{\footnotesize {note.translate(TEX)}}}" for note in table.notes]
    return "\n".join(lines) + "\n"


def _tex(texts: list[str]) -> str:
    return " & ".join(text.translate(TEX) for text in texts) + r" \\"


def _latex(cell: Cell) -> str:
    text = rf"\textbf{{{cell.text}}}" if cell.bold else cell.text
    return text + (rf"\textsuperscript{{{cell.marks}}}" if cell.marks else "") + (f" ± {cell.sd}" if cell.sd else "")


def to_html(table: Table) -> str:
    """Return a table element; a group's first row has the class `first`, a row with GRU or clipping `under`."""
    heads = "".join(f'<th colspan="{len(table.columns)}">{html.escape(split_label(s))}</th>' for s in table.splits)
    names = "".join(f"<th>{html.escape(name)}</th>" for _ in table.splits for name in table.columns)
    lines = [f'<thead><tr><th rowspan="2">Method</th>{heads}</tr><tr>{names}</tr></thead>']
    for row in table.rows:
        style = " ".join(["first"] * row.first + ["under"] * row.under)
        data = "".join(f"<td>{_html(cell)}</td>" for cell in row.cells)
        lines.append(f'<tr class="{style}"><th scope="row">{html.escape(row.label)}</th>{data}</tr>')
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in table.notes)
    return '<table class="numbers main">' + "\n".join(lines) + "</table>" + notes


def _html(cell: Cell) -> str:
    text = f"<strong>{cell.text}</strong>" if cell.bold else cell.text
    marks = f"<sup>{cell.marks}</sup>" if cell.marks else ""
    return text + marks + (f' <span class="sd">± {cell.sd}</span>' if cell.sd else "")
