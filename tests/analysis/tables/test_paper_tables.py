"""The paper's tables as we print them from its numbers, against an independent reading of its source."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from analysis import paper
from analysis.number_format import DASH
from analysis.paper import TABLES
from analysis.report.page import Section, TableItem, write_page
from analysis.tables import table_definitions
from analysis.tables.markdown_latex import Table, to_latex
from analysis.tables.paper_tables import make_sheet

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
    "tofu_main": {("LLaMA2-7B", "5%", "NPO+KL", "FQ ↑"), ("LLaMA2-7B", "5%", "SimNPO+GD", "FQ ↑")},
}
"""Ties of which the paper prints one bold and not the other, which is the method's own row."""
SIGNS = {r"$\uparrow$": " ↑", r"$\downarrow$": " ↓", r"$\tau$": "τ", r"$\gamma$": "γ", r"\%": "%"}
Line = tuple[bool, list[str], list[tuple[str, bool]]]


def paper_table(table: str) -> Table:
    return render(table, paper.load_table(table))


def render(table: str, frame: pd.DataFrame) -> Table:
    return make_sheet(table_definitions.LAYOUTS[table], frame).table


@pytest.fixture(scope="module")
def source(shared: Path) -> str:
    path = shared / "reference" / "paper.tex"
    if not path.is_file():
        pytest.skip(f"no {path}")
    return path.read_text(encoding="utf-8")


def body(source: str, table: str) -> str:
    """The table's tabular, nested ones taken apart."""
    text = source.split(rf"\label{{{LATEX_LABELS[table]}}}")[1].split(r"\end{table}")[0]
    text = text.split(r"\begin{tabular}", 1)[1].split("}", 1)[1]
    return re.sub(r"\\begin\{tabular\}\{c\}|\\end\{tabular\}", "", text)


def plain(cell: str) -> str:
    """A cell's text without its marks."""
    for sign, text in SIGNS.items():
        cell = cell.replace(sign, text)
    cell = re.sub(r"\\multirow\{\d\}\{\*\}|\\textbf|\\;|[~{}$]", " ", cell)
    return " ".join(cell.split())


def paper_lines(source: str, table: str) -> Iterator[Line]:
    """(a rule above it, its texts, its numbers with whether they are bold) of every row of numbers."""
    rule = False
    for line in body(source, table).split(r"\\"):
        rule = rule or r"\midrule" in line
        line = re.sub(r"\\(cmidrule\S*|(top|bottom)rule(\[.*?\])?|midrule)", "", line)
        cells = [cell.strip() for cell in line.split("&")]
        numbers = [(plain(cell).replace("--", DASH), r"\textbf" in cell) for cell in cells if is_number(cell)]
        if numbers and "N/A" not in line and "multicolumn" not in line:
            yield rule, [plain(cell) for cell in cells if not is_number(cell)], numbers
            rule = False


def is_number(cell: str) -> bool:
    return re.fullmatch(r"-?\d+\.\d+|--", plain(cell)) is not None


def paper_heads(source: str, table: str) -> tuple[list[str], list[str]]:
    """The texts of the head over columns of numbers from the top, each with its width (`*4`), and those of the rest."""
    over, rest = [], []
    for line in body(source, table).split(r"\midrule")[0].split(r"\\"):
        line = re.sub(r"\\(cmidrule\S*|(top|bottom)rule(\[.*?\])?)", "", line)
        for place, cell in enumerate(line.split("&")):
            wide = re.fullmatch(r"\s*\\multicolumn\{(\d+)\}\{c\}(.*)", cell, re.DOTALL)
            text = plain(wide[2] if wide else cell)
            if text in ("Method", "Metric", "Component"):
                rest.append(text)
            elif text:
                over.append(f"{text}*{wide[1] if wide else 1}" if place else text)
    return over, rest


@pytest.mark.data
@pytest.mark.parametrize("table", TABLES)
def test_heads_rules_and_cells_are_the_papers(table: str, source: str) -> None:
    ours = paper_table(table)
    over, rest = paper_heads(source, table)
    heads = [f"{head.text}*{head.width}" for level in ours.levels for head in level]
    assert [*heads, *(f"{text}*1" for text in ours.leaves)] == over
    assert list(ours.stubs) == rest
    rule = re.compile(r"\\cmidrule\(lr\)\{\d+-\d+\}")
    assert rule.findall(to_latex(ours)) == rule.findall(body(source, table))
    lines = list(paper_lines(source, table))
    assert len(ours.rows) == len(lines)
    printed = [(float(text), bold) for *_, numbers in lines for text, bold in numbers if text != DASH]
    frame = paper.load_table(table)
    assert sorted(printed) == sorted(zip(frame["value"], frame["bold"], strict=True))
    method, exceptions = "", set()
    for row, (rule, texts, numbers) in zip(ours.rows, lines, strict=True):
        assert [row.label, *row.more] == texts
        assert row.first == rule, texts
        assert [cell.text for cell in row.cells] == [text for text, _ in numbers], texts
        assert not any(cell.sd or cell.n or cell.beside for cell in row.cells)
        method = method if row.under else row.label
        for place, (cell, (_, bold)) in enumerate(zip(row.cells, numbers, strict=True)):
            if cell.bold != bold:
                assert cell.bold
                assert not row.under
                group = spread(ours)
                exceptions.add((*(level[place] for level in group), method, ours.leaves[place]))
    assert exceptions == TIES.get(table, set())


def spread(table: Table) -> list[list[str]]:
    """The text over every column, level by level."""
    return [[head.text for head in level for _ in range(head.width)] for level in table.levels]


@pytest.mark.parametrize("table", TABLES)
def test_every_number_is_shown_once_whatever_the_file_says_of_bold_and_order(table: str) -> None:
    frame = paper.load_table(table)
    texts = [cell.text for row in paper_table(table).rows for cell in row.cells if cell.text != DASH]
    assert sorted(map(float, texts)) == sorted(frame["value"])
    turned = frame.assign(bold=~frame["bold"]).iloc[::-1].reset_index(drop=True)
    assert render(table, turned) == paper_table(table)


@pytest.mark.parametrize("table", TABLES)
def test_misprints_are_shown_as_printed_and_marked(table: str) -> None:
    ours, errata = paper_table(table), [erratum for erratum in paper.ERRATA if erratum.table == table]
    marked = [cell.text for row in ours.rows for cell in row.cells if cell.marks]
    assert sorted(marked) == sorted(erratum.printed for erratum in errata)
    assert {cell.marks for row in ours.rows for cell in row.cells} <= {"", "¶"}
    notes = [note for note in ours.notes if note.startswith("¶")]
    assert len(notes) == bool(errata)
    for erratum in errata:
        assert f"{erratum.printed} ({erratum.reason}" in notes[0]
        assert erratum.corrected is None or f"{erratum.corrected} is meant" in notes[0]


def test_latex_compiles(tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex")
    texts = [to_latex(paper_table(table)) for table in TABLES]
    assert "Overfull" not in compiled(tmp_path, texts)


def compiled(folder: Path, texts: list[str]) -> str:
    """Compile tables, one a page, and return the log."""
    packages = r"\usepackage[a3paper,landscape,margin=1cm]{geometry}\usepackage{booktabs}"
    pages = "\n\\clearpage\n".join(rf"\noindent {text}" for text in texts)
    document = rf"\documentclass{{article}}{packages}\begin{{document}}{pages}\end{{document}}"
    (folder / "tables.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


def test_html_has_the_rows_and_what_is_bold(tmp_path: Path) -> None:
    table = paper_table("tofu_main")
    sheet = make_sheet(table_definitions.LAYOUTS["tofu_main"], paper.load_table("tofu_main"))
    write_page(tmp_path, title="x", opened=[Section("", (TableItem(sheet.table),))])
    page = (tmp_path / "index.html").read_text()
    page = page[page.index("<table") : page.index("</table>")]
    assert '<tr><th rowspan="3">Method</th><th colspan="4">Phi-1.5' in page
    assert page.count("<tr") == 3 + len(table.rows)
    assert page.count("<strong>") == sum(cell.bold for row in table.rows for cell in row.cells)
