"""A report of several sweeps: they fill the paper's tables and figures together, or stand side by side."""

from pathlib import Path

import pandas as pd
from typer.testing import CliRunner

from analysis import report
from tests.support import benchmark_store
from tests.support.sweep_store import GRU, NONE, grid, write_sweep, write_trial

BACKBONES = {"tofu_llama": "Llama-2-7B-chat", "tofu_phi": "Phi-1.5"}


def write_tofu(store: Path, name: str, fq: float) -> None:
    """GA on both splits without and with GRU, one seed."""
    trials = []
    for split in ("forget05", "forget10"):
        for rectifier, change in ((NONE, 0.0), (GRU, 5.0)):
            trial = f"{len(trials)}{name[5:]}".ljust(12, "0")
            trials.append(write_trial(store, trial, "ga", rectifier, fq=fq + change, mu=0.3, split=split))
    write_sweep(store, trials, name, "0a1b2c3d", backbone=BACKBONES.get(name, ""))


def test_two_sweeps_fill_the_papers_tables_and_its_figure(tmp_path: Path) -> None:
    for name, fq in (("tofu_llama", -16.0), ("tofu_phi", -28.0)):
        write_tofu(tmp_path, name, fq)
    done = CliRunner().invoke(report.app, ["tofu_llama", "tofu_phi", "--storage", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (0, "")
    folder = tmp_path / "reports/tofu_llama-0a1b2c3d+tofu_phi-0a1b2c3d"
    free, main = ((folder / f"tables/{name}.md").read_text() for name in ("tofu_retain_free", "tofu_main"))
    for text in (free, main):
        assert text.strip() in done.stdout
    heads, _, *rows = grid(main)
    assert heads[1::2] == [
        f"{backbone} {split} FQ ↑" for backbone in ("Phi-1.5", "Llama-2-7B-chat") for split in ("forget05", "forget10")
    ]
    assert [row[1::2] for row in rows if row[0] == "GA"] == [["-28.0000"] * 2 + ["-16.0000"] * 2]
    points = pd.read_csv(folder / "figures/pairs.csv")
    panels = points.loc[points["method"] == "ga", ["backbone", "split", "metric"]].drop_duplicates()
    assert len(panels) == 8
    page = (folder / "index.html").read_text()
    assert "tofu_phi: 1 seed is too few for a verdict on GRU, which takes 3: FQ is better in 2 of 2 comparisons" in page
    assert "<h3>Table 2. TOFU: methods" in page


def test_other_sweeps_of_one_benchmark_stand_side_by_side_and_those_of_two_apart(tmp_path: Path) -> None:
    for name in ("quickstart", "tofu_tiny"):
        write_tofu(tmp_path, name, -16.0)
    benchmark_store.write_store(tmp_path, "own")
    folder = report.build_report(["quickstart", "own", "tofu_tiny"], tmp_path)
    heads = grid((folder / "tables/tofu_main.md").read_text())[0]
    assert heads[1::4] == ["quickstart forget05 FQ ↑", "tofu_tiny forget05 FQ ↑"]
    assert grid((folder / "tables/main.md").read_text())[0][1] == "own said ↓"
    assert {path.stem for path in (folder / "figures").glob("*.csv")} >= {"tofu-pairs", "own-pairs"}
