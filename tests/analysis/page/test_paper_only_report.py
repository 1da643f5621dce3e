"""The report of the paper's own numbers: its tables for a named sweep, without a run."""

import re
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis import paper, report
from analysis.page import paper_only_report
from analysis.tables import paper_tables, table_definitions
from search_spaces.schema import sweep as spaces


def test_the_papers_tables_need_no_storage(tmp_path: Path, written_figures: None) -> None:
    done = CliRunner().invoke(
        report.app, [*map(str, ("tofu_llama", "--source", "paper", "--output", tmp_path / "out"))]
    )
    assert (done.exit_code, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[0] == "What the paper prints of what tofu_llama runs."
    assert "## Table 2. TOFU: methods without and with GRU" in said
    assert not any("Phi-1.5" in line for line in said)
    names = {path.name for path in (tmp_path / "out/tables").iterdir()}
    assert names == {"paper.md", "tofu_main.md", "tofu_main.tex", "tofu_main.csv"}
    assert set(pd.read_csv(tmp_path / "out/figures/paper-pairs.csv")["backbone"]) == {"Llama-2-7B-chat"}
    page = (tmp_path / "out/index.html").read_text()
    assert "<strong>-3.5161</strong>" in page
    assert page.count('<svg role="img"') == 2
    shown = re.findall('<use href="#([^"]*)"', page)  # by the parts of each, one under another on a phone
    assert {name: page.count(f'id="{name}"') for name in shown} == {"paper-arrows": 1, "paper-pairs": 1}
    kept, printed = pd.read_csv(tmp_path / "out/tables/tofu_main.csv"), paper.load_table("tofu_main")
    assert kept["value"].tolist() == printed.loc[printed["backbone"] == "Llama-2-7B-chat", "value"].tolist()


def test_a_sweep_of_another_model_has_all_the_papers_tables_under_their_titles(tmp_path: Path) -> None:
    done = CliRunner().invoke(report.app, ["tofu_tiny", "--source", "paper", "--output", str(tmp_path)])
    assert done.stdout.startswith("The paper has no table of what tofu_tiny runs: these are all that it has on TOFU,")
    tofu = [table for table in paper.TABLES if table.startswith("tofu")]
    titles = [line.removeprefix("## ") for line in done.stdout.splitlines() if line.startswith("## ")]
    assert sorted(titles) == sorted(table_definitions.LAYOUTS[table].caption for table in tofu)
    assert (tmp_path / "index.html").read_text().count("<table") == 7
    assert "14.0316¶" in done.stdout


def test_every_sweep_of_the_papers_benchmarks_is_known_and_every_table_is_filled() -> None:
    sweeps = [spaces.load_sweep(name) for name in spaces.sweep_names()]
    papers = {table.partition("_")[0] for table in paper.TABLES}
    assert {s.name: s.benchmark.name for s in sweeps if s.benchmark.name in papers} == paper_only_report.BENCHMARKS
    filled = {name: paper_tables.tables_of_sweep(name) for name in paper_only_report.BENCHMARKS}
    assert filled["tofu_phi_uwc"] == {"tofu_uwc_ga": "Phi-1.5", "tofu_uwc_npo": "Phi-1.5"}
    assert {table for tables in filled.values() for table in tables} == set(paper.TABLES)
    unfilled = {name for name, tables in filled.items() if not tables}
    others = {"arena", "arena_quick", "tofu_llama32_1b", "tofu_llama32_3b", "tofu_llama31_8b"}
    assert unfilled == {"quickstart", "tofu_tiny", "tofu_dynamics", "muse_news", *others}


@pytest.mark.parametrize(("name", "words"), [("own", "no tables for such"), ("tofu_lama", "did you mean 'tofu_llama'")])
def test_a_sweep_that_the_paper_has_not(name: str, words: str) -> None:
    done = CliRunner().invoke(report.app, [name, "--source", "paper"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
