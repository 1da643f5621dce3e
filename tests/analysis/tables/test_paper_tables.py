"""The paper's tables as we print them from its numbers, against an independent reading of its source."""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from analysis import paper
from analysis.labels import DASH
from analysis.paper import TABLE_NAMES
from analysis.tables import table_definitions
from analysis.tables.paper_tables import fill_table
from analysis.tables.printing import PrintedTable, to_markdown

LATEX_LABELS = {
    "tofu_main": "tab:tofu_gru_complete",
    "tofu_retain_free": "tab:tofu rdf",
    "wmdp": "tab:wmdp",
    "muse": "tab:muse-books",
    "wmdp_rmu": "tab:wmdp_rmu",
    "tofu_tau": "tab:grad_clip_comparison",
    "tofu_gamma": "tab:ema_experiment_results",
    "tofu_ablation": "tab:ablation_study",
    "tofu_uwc_ga": "tab:uwc_phi_ga",
    "tofu_uwc_npo": "tab:uwc_phi_npo",
}
TIES = {
    "tofu_main": {
        ("Llama-2-7B-chat", "forget05", "FQ ↑", "NPO+KL"),
        ("Llama-2-7B-chat", "forget05", "FQ ↑", "SimNPO+GD"),
    }
}
"""Ties of which the paper prints one bold and not the other, which is the method's own row."""


def paper_table(table: str, frame: pd.DataFrame | None = None) -> PrintedTable:
    found = paper.load_table(table) if frame is None else frame
    return fill_table(table_definitions.LAYOUTS[table], found).table


@pytest.fixture(scope="module")
def source(shared: Path) -> str:
    path = shared / "reference" / "paper.tex"
    if not path.is_file():
        pytest.skip(f"no {path}")
    return path.read_text(encoding="utf-8")


def paper_lines(source: str, table: str) -> Iterator[list[tuple[str, bool]]]:
    """The numbers, with whether they are bold, of every row of numbers."""
    text = source.split(rf"\label{{{LATEX_LABELS[table]}}}")[1].split(r"\end{table}")[0]
    text = text.split(r"\begin{tabular}", 1)[1].split("}", 1)[1]
    text = re.sub(r"\\begin\{tabular\}\{c\}|\\end\{tabular\}", "", text)  # nested ones taken apart
    for line in text.split(r"\\"):
        line = re.sub(r"\\(cmidrule\S*|(top|bottom)rule(\[.*?\])?|midrule)", "", line)
        plain = {cell: re.sub(r"\\multirow\{\d\}\{\*\}|\\textbf|\\;|[~{}$]", " ", cell) for cell in line.split("&")}
        told = [(" ".join(plain[cell].split()), r"\textbf" in cell) for cell in line.split("&")]
        numbers = [(text.replace("--", DASH), bold) for text, bold in told if re.fullmatch(r"-?\d+\.\d+|--", text)]
        if numbers and "N/A" not in line and "multicolumn" not in line:
            yield numbers


@pytest.mark.data
@pytest.mark.parametrize("table", TABLE_NAMES)
def test_cells_are_the_papers(table: str, source: str) -> None:
    cells, lines = paper_table(table).cells, list(paper_lines(source, table))
    frame = paper.load_table(table)
    printed = [(float(text), bold) for numbers in lines for text, bold in numbers if text != DASH]
    assert sorted(printed) == sorted(zip(frame["value"], frame["bold"], strict=True))
    assert [[cell.text for cell in row] for row in cells.to_numpy()] == [[text for text, _ in row] for row in lines]
    assert not any(cell.spread or cell.beside for cell in cells.to_numpy().flat)
    exceptions = set()
    for label, row, numbers in zip(cells.index, cells.to_numpy(), lines, strict=True):
        for head, cell, (_, bold) in zip(cells.columns, row, numbers, strict=True):
            if cell.bold != bold:
                assert cell.bold
                exceptions.add((*head, label))
    assert exceptions == TIES.get(table, set())


@pytest.mark.parametrize("table", TABLE_NAMES)
def test_every_number_is_shown_once_whatever_the_file_says_of_bold_and_order(table: str) -> None:
    frame = paper.load_table(table)
    texts = [cell.text for cell in paper_table(table).cells.to_numpy().flat if cell.text != DASH]
    assert sorted(map(float, texts)) == sorted(frame["value"])
    turned = frame.assign(bold=~frame["bold"]).iloc[::-1].reset_index(drop=True)
    assert to_markdown(paper_table(table, turned)) == to_markdown(paper_table(table))


@pytest.mark.parametrize("table", TABLE_NAMES)
def test_misprints_are_shown_as_printed_and_marked(table: str) -> None:
    ours, errata = paper_table(table), [erratum for erratum in paper.PAPER_ERRATA if erratum.table == table]
    marked = [cell.text for cell in ours.cells.to_numpy().flat if cell.marks]
    assert sorted(marked) == sorted(erratum.printed for erratum in errata)
    assert {cell.marks for cell in ours.cells.to_numpy().flat} <= {"", "¶"}
    notes = [note for note in ours.notes if note.startswith("¶")]
    assert len(notes) == bool(errata)
    for erratum in errata:
        assert f"{erratum.printed} ({erratum.reason}" in notes[0]
        assert erratum.corrected is None or f"{erratum.corrected} is meant" in notes[0]
