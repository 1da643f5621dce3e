"""Numbers as printed, and tables as Markdown, LaTeX and HTML: pandas lays these out, and writes cells as told here."""

import html
import re
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup
from pandas.io.formats.style import Styler

from analysis.labels import DASH, DEFAULT_TABLE_DECIMALS

LATEX_ESCAPES = str.maketrans(
    {sign: f"\\{sign}" for sign in "%_&#${}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "—": "--", "‖": r"$\|$"}
    | {"τ": r"$\tau$", "γ": r"$\gamma$", "≥": r"$\geq$", "θ": r"$\theta$"}
    | {"†": r"$\dagger$", "‡": r"$\ddagger$", "§": r"\S{}", "¶": r"\P{}"}
)


def format_number(value: float, form: str = f".{DEFAULT_TABLE_DECIMALS}f") -> str:
    """Return a number in this format, a dash for NaN; zero has no sign."""
    return DASH if pd.isna(value) else format(value, f"z{form}")


def format_signed_difference(value: float, digits: int) -> str:
    """Return a difference with its sign, as many decimals as its first digit takes beyond `digits`; zero is `0`."""
    if pd.isna(value) or not value:
        return DASH if pd.isna(value) else "0"
    return f"{value:+.{digits}f}" if round(value, digits) else f"{value:+.1g}"


@dataclass(frozen=True)
class TableCell:
    """A printed number. `marks`: signs that the notes explain; `spread`: ` ± SD (n = N)`; `beside`: below it."""

    text: str
    bold: bool = False
    marks: str = ""
    spread: str = ""
    beside: str = ""


@dataclass(frozen=True)
class PrintedTable:
    """A table as printed: a `TableCell` or a text in each of `cells`; `title` stands above it, `notes` below it.

    With `TableCell` its heads have several levels and its index names the lines. `to_markdown` and `to_latex` write
    such a table alone, `html` one of texts, too.
    """

    cells: pd.DataFrame
    notes: tuple[str, ...] = ()
    title: str = ""

    @property
    def html(self) -> Markup:
        if not isinstance(self.cells.columns, pd.MultiIndex):
            with pd.option_context("display.max_colwidth", None):
                return Markup(self.cells.to_html(index=False, border=0))
        return Markup(_style(self.cells, _html, html.escape, "&emsp;").to_html(exclude_styles=True))


def to_markdown(table: PrintedTable) -> str:
    """Return a pipe table, heads of all levels in one line, and its notes as paragraphs."""
    texts = table.cells.map(_markdown)
    texts.columns = pd.Index([" ".join(head) for head in table.cells.columns])
    align = ["left", *["right"] * texts.shape[1]]
    text = texts.rename_axis("Method").reset_index().to_markdown(index=False, disable_numparse=True, colalign=align)
    return "\n".join([f"{text}\n", *(f"{note}\n" for note in table.notes)])


def to_latex(table: PrintedTable) -> str:
    """Return a booktabs tabular, and its notes below it."""
    styler = _style(table.cells, _latex, _escape_tex, r"\quad ")
    columns = "l" + "r" * table.cells.shape[1]
    tabular = styler.to_latex(hrules=True, multicol_align="c", column_format=columns)
    notes = (re.sub("`([^`]*)`", r"\\texttt{\1}", _escape_tex(note)) for note in table.notes)
    rest = "".join(f"\\par\\smallskip{{\\footnotesize\\raggedright {note}\\par}}\n" for note in notes)
    return f"% needs \\usepackage{{booktabs}}\n{tabular}{rest}"


def _style(cells: pd.DataFrame, write: Callable[[TableCell], str], escape: Callable[[str], str], indent: str) -> Styler:
    """Return a styler of the cells; what a method is combined with stands indented under it."""
    styler = cells.rename_axis(columns=[*[None] * (cells.columns.nlevels - 1), "Method"]).style
    styler.format(write).format_index(escape, axis="columns")
    styler.format_index(lambda text: f"{indent * text.startswith('w/ ')}{escape(text)}", axis="index")
    return styler


def _markdown(cell: TableCell) -> str:
    text = f"**{cell.text}**" if cell.bold else cell.text
    return text + cell.marks + cell.spread + (f" ({cell.beside})" if cell.beside else "")


def _latex(cell: TableCell) -> str:
    text = rf"\textbf{{{_escape_tex(cell.text)}}}" if cell.bold else _escape_tex(cell.text)
    text += (rf"\textsuperscript{{{_escape_tex(cell.marks)}}}" if cell.marks else "") + _escape_tex(cell.spread)
    if not cell.beside:
        return text
    below = rf"{{\scriptsize {_escape_tex(cell.beside)}}}"
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{text}\\[-2pt]{below}\end{{tabular}}"


def _html(cell: TableCell) -> str:
    text = f"<strong>{cell.text}</strong>" if cell.bold else cell.text
    text += f"<sup>{cell.marks}</sup>" if cell.marks else ""
    text += f'<span class="sd">{cell.spread}</span>' if cell.spread else ""
    return text + (f'<br><span class="sd">{cell.beside}</span>' if cell.beside else "")


def _escape_tex(text: str) -> str:
    return text.translate(LATEX_ESCAPES)
