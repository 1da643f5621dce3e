"""Printed tables, a group of columns a split: cells, rows and notes as Markdown, LaTeX and HTML."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Literal

import pandas as pd

DASH = "—"
DECIMALS = 4
"""Of a number in a table, and of a difference between two."""
BOLD = {
    "method": "Bold: the best of a method's rows in a column, as printed; a utility of 0 never is.",
    "column": "Bold: the best method of a column, as printed; a utility of 0 never is.",
}
"""What tables say of their bold numbers, by whom these compete with."""
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
    cells: tuple[Cell, ...]
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Head:
    """A text over `width` columns; empty where a level of heads has nothing to say of them."""

    text: str
    width: int = 1


@dataclass(frozen=True)
class Table:
    """A table as printed: the same `columns` under every split, and `notes` below it, each opened by its sign.

    `stubs`: the heads of the columns that hold no numbers. `over`: levels of heads above the columns, from the top, in
    place of the one level that the splits make.
    """

    splits: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ("Method",)
    over: tuple[tuple[Head, ...], ...] | None = None

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the heads of single columns."""
        return self.columns * len(self.splits)

    @property
    def levels(self) -> tuple[tuple[Head, ...], ...]:
        """Return the heads above the leaves, from the top; all levels are equally wide."""
        splits = tuple(Head(split_label(split), len(self.columns)) for split in self.splits)
        return (splits,) if self.over is None else self.over


def split_label(split: str) -> str:
    """Return `forget05 (5%)` for TOFU's splits, `own rows` for a person's, other names as they are."""
    match = re.fullmatch(r"forget(\d\d)", split)
    return f"{split} ({int(match[1])}%)" if match else {"own": "own rows"}.get(split, split)


def number(value: float, decimals: int = DECIMALS) -> str:
    """Return a number at printed precision, without the sign of a rounded zero; a dash for NaN."""
    return DASH if pd.isna(value) else f"{round(value, decimals) + 0.0:.{decimals}f}"


def cells(
    column: pd.DataFrame, best: Literal["highest", "lowest"] | None = "highest", floor: float | None = None
) -> list[Cell]:
    """Return the printed cells of rows that compete in one column (stats: mean, sd, n); the best is bold.

    Compared as printed; nothing is bold where fewer than two rows have a number, where `best` is None, or where the
    best is `floor`: no value of a column with a floor is less, and one that is reached is nobody's best.
    """
    texts = [number(value) for value in column["mean"]]
    values = [float(text) for text in texts if text != DASH]
    top = ""
    if best and len(values) > 1:
        top = number(max(values) if best == "highest" else min(values))
    top = "" if floor is not None and top == number(floor) else top
    return [
        Cell(text, "" if pd.isna(sd) else number(sd), text == top) for text, sd in zip(texts, column["sd"], strict=True)
    ]


def to_markdown(table: Table) -> str:
    """Return a pipe table, heads of all levels in one line, and its notes as paragraphs."""
    if table.over is None:
        heads = [f"{split} {name}" for split in table.splits for name in table.columns]
    else:
        spread = [[head.text for head in level for _ in range(head.width)] for level in table.over]
        heads = [" ".join(filter(None, texts)) for texts in zip(*spread, table.leaves, strict=True)]
    rows = [[row.label, *row.more, *map(_markdown, row.cells)] for row in table.rows]
    grid = pd.DataFrame(rows, columns=[*table.stubs, *heads])
    return "\n".join([pipe_table(grid, len(table.stubs)), *(f"{note}\n" for note in table.notes)])


def _markdown(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.bold else cell.text
    return text + cell.marks + cell.spread + (f" ({cell.beside})" if cell.beside else "")


def pipe_table(frame: pd.DataFrame, left: int = 1) -> str:
    """Return a frame of texts as a Markdown table, the first `left` columns flush left."""
    align = ["left"] * left + ["right"] * (frame.shape[1] - left)
    return frame.to_markdown(index=False, disable_numparse=True, colalign=align if len(frame) else None) + "\n"


def to_latex(table: Table) -> str:
    """Return a booktabs tabular in the layout of the paper's tables, and its notes below it."""
    left = len(table.stubs)
    shape = "l" * left + "r" * len(table.leaves)
    lines = [r"% needs \usepackage{booktabs}", rf"\begin{{tabular}}{{{shape}}}", r"\toprule"]
    for level in table.levels:
        heads = [rf"\multicolumn{{{head.width}}}{{c}}{{{head.text}}}" for head in level]
        lines += [_tex([""] * left + heads), _rules(level, left)]
    lines.append(_tex([*table.stubs, *table.leaves]))
    for row in table.rows:
        lines += [r"\midrule"] * row.first
        label = rf"\quad {row.label}" if row.under else row.label
        lines.append(_tex([label, *row.more, *map(_latex, row.cells)]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    notes = [CODE.sub(r"\\texttt{\1}", note.translate(TEX)) for note in table.notes]
    lines += [rf"\par\smallskip{{\footnotesize\raggedright {note}\par}}" for note in notes]
    return "\n".join(filter(None, lines)) + "\n"


def _rules(level: tuple[Head, ...], left: int) -> str:
    """Return a rule under every head that groups columns."""
    rules, start = [], left + 1
    for head in level:
        end = start + head.width - 1
        rules += [rf"\cmidrule(lr){{{start}-{end}}}"] * (head.width > 1 and bool(head.text))
        start = end + 1
    return "".join(rules)


def _tex(texts: list[str]) -> str:
    return " & ".join(text.translate(TEX) for text in texts) + r" \\"


def _latex(cell: Cell) -> str:
    text = rf"\textbf{{{cell.text}}}" if cell.bold else cell.text
    text += (rf"\textsuperscript{{{cell.marks}}}" if cell.marks else "") + cell.spread
    if not cell.beside:
        return text
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{text}\\[-2pt]{{\scriptsize {cell.beside}}}\end{{tabular}}"


def to_html(table: Table) -> str:
    """Return a table element; a group's first row has the class `first`, a row with GRU or clipping `under`."""
    depth, stubs = len(table.levels) + 1, ""
    for stub in table.stubs:
        stubs += f'<th rowspan="{depth}">{html.escape(stub)}</th>'
    levels = ["".join(f'<th colspan="{h.width}">{html.escape(h.text)}</th>' for h in level) for level in table.levels]
    levels.append("".join(f"<th>{html.escape(name)}</th>" for name in table.leaves))
    levels[0] = stubs + levels[0]
    lines = [f"<thead>{''.join(f'<tr>{level}</tr>' for level in levels)}</thead>"]
    for row in table.rows:
        style = " ".join(["first"] * row.first + ["under"] * row.under)
        more = "".join(f'<th scope="row">{html.escape(text)}</th>' for text in row.more)
        data = more + "".join(f"<td>{_html(cell)}</td>" for cell in row.cells)
        lines.append(f'<tr class="{style}"><th scope="row">{html.escape(row.label)}</th>{data}</tr>')
    texts = [CODE.sub(r"<code>\1</code>", html.escape(note)) for note in table.notes]
    notes = "".join(f'<p class="note">{text}</p>' for text in texts)
    return '<table class="numbers main">' + "\n".join(lines) + "</table>" + notes


def _html(cell: Cell) -> str:
    text = f"<strong>{cell.text}</strong>" if cell.bold else cell.text
    marks = f"<sup>{cell.marks}</sup>" if cell.marks else ""
    spread = f' <span class="sd">{cell.spread.strip()}</span>' if cell.spread else ""
    return text + marks + spread + (f'<br><span class="sd">{cell.beside}</span>' if cell.beside else "")
