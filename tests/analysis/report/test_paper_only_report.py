"""The report of the paper's own numbers: its tables for a named sweep, without a run."""

from pathlib import Path

import pandas as pd
from typer.testing import CliRunner

from analysis import paper, report


def test_the_papers_tables_need_no_storage(tmp_path: Path, written_figures: None) -> None:
    done = CliRunner().invoke(
        report.app, [*map(str, ("tofu_llama", "--source", "paper", "--output", tmp_path / "out"))]
    )
    assert (done.exit_code, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[0].startswith("The numbers of Wang et al.")
    assert "## Table 2. TOFU: methods without and with GRU" in said
    assert not any("Phi-1.5" in line for line in said)
    names = {path.name for path in (tmp_path / "out/tables").iterdir()}
    assert names == {"paper.md", "tofu_main.md", "tofu_main.tex", "tofu_main.csv"}
    assert set(pd.read_csv(tmp_path / "out/figures/paper-pairs.csv")["backbone"]) == {"Llama-2-7B-chat"}
    page = (tmp_path / "out/index.html").read_text()
    assert "<strong>-3.5161</strong>" in page
    assert page.count("<img") == 1
    kept, printed = pd.read_csv(tmp_path / "out/tables/tofu_main.csv"), paper.load_table("tofu_main")
    assert kept["value"].tolist() == printed.loc[printed["backbone"] == "Llama-2-7B-chat", "value"].tolist()
