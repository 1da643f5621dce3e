"""The main table of an invented sweep: numbers, what is bold, Markdown, LaTeX and CSV, the chosen settings."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import report, runs
from analysis.load.goals import TOFU
from analysis.tables import format as tables_format
from analysis.tables import main
from tests.support import sweep_store
from tests.support.sweep_store import GRU, NONE, Frames, grid, write_sweep, write_trial

store, frames = sweep_store.tiny_store, sweep_store.tiny_frames


def test_main_table(frames: Frames) -> None:
    table = main.main_table(*frames)
    assert list(table.index[:3]) == [("original", ""), ("retain", ""), ("ga", "none")]
    ga = table.loc[("ga", "none"), "forget05"]
    assert ga["forget_quality", "mean"] == -22.0  # its second seed failed
    assert ga["forget_quality", "n"] == 1
    gd = table.loc[("gd", "gru")]
    assert gd["forget05", "forget_quality", "mean"] == pytest.approx(-8.0)  # 0.05 has the higher FQ, below 0.9 * 0.9
    assert gd["forget10", "model_utility", "mean"] == pytest.approx(0.85)
    assert gd["forget05", "forget_quality", "sd"] == pytest.approx(np.sqrt(2))
    npo = table.loc[("npo", "gru"), "forget10"]
    assert npo["forget_quality", "mean"] == pytest.approx(-13.0)  # the other setting diverged and went missing


def test_markdown(frames: Frames) -> None:
    lines = tables_format.to_markdown(main.printed(main.main_table(*frames), TOFU)).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["Method", "forget05 FQ ↑", "forget05 MU ↑", "forget10 FQ ↑", "forget10 MU ↑"]
    assert rows[2] == ["Original", "-21.4000", "0.9000", "-21.4000", "0.9000"]
    assert rows[3] == ["Retrain", "0.0000", "0.8800", "0.0000", "0.8800"]
    assert rows[4][:3] == ["GA", "**-22.0000**", "0.0000"]
    assert rows[5][:3] == ["w/ GRU", "-23.0000 ± 1.4142", "**0.1100** ± 0.0141"]
    assert [row[0] for row in rows[6:]] == ["GD", "w/ GRU", "NPO", "w/ GRU"]


def pair(plain: float, gru: float, column: int = 0) -> list[tables_format.Cell]:
    """Return the two cells of one column (FQ, MU) in a table of one method."""
    index = pd.MultiIndex.from_tuples([("ga", "none"), ("ga", "gru")], names=["method", "rectifier"])
    columns = pd.MultiIndex.from_product([["forget05"], list(main.METRICS), ["mean", "sd", "n"]], names=main.LEVELS)
    frame = pd.DataFrame([[plain, np.nan, 1] * 2, [gru, np.nan, 1] * 2], index=index, columns=columns)
    return [row.cells[column] for row in main.printed(frame, TOFU).rows]


@pytest.mark.parametrize(
    ("plain", "gru", "bold", "texts"),
    [
        (0.5, 0.6, (False, True), ["0.5000", "0.6000"]),
        (-2.0, -3.0, (True, False), ["-2.0000", "-3.0000"]),
        (0.50001, 0.50002, (True, True), ["0.5000", "0.5000"]),  # a tie as printed
        (-0.00001, 0.0, (True, True), ["0.0000", "0.0000"]),
        (np.nan, 0.6, (False, False), ["—", "0.6000"]),  # nothing to compare with
        (np.nan, np.nan, (False, False), ["—", "—"]),
    ],
)
def test_bold(plain: float, gru: float, bold: tuple[bool, bool], texts: list[str]) -> None:
    cells = pair(plain, gru)
    assert tuple(cell.bold for cell in cells) == bold
    assert [cell.text for cell in cells] == texts


@pytest.mark.parametrize(
    ("plain", "gru", "bold"),
    [
        (0.0, 0.0, (False, False)),  # two collapsed models: a tie at nothing
        (0.00004, 0.0, (False, False)),  # as printed
        (0.0001, 0.0, (True, False)),
        (0.3, 0.3, (True, True)),
    ],
)
def test_a_utility_of_0_is_nobodys_best(plain: float, gru: float, bold: tuple[bool, bool]) -> None:
    assert tuple(cell.bold for cell in pair(plain, gru, column=1)) == bold
    assert "a utility of 0 never is" in tables_format.BOLD["method"]


def test_of_two_collapsed_models_of_your_own_none_is_the_best(tmp_path: Path) -> None:
    """What is left of the forget rows is 0 as well, which is the best that can be."""
    for place, rectifier in enumerate((NONE, GRU)):
        found = {"forget_extraction_strength": 0.0, "utility": 0.0}
        write_trial(tmp_path, f"{place:012x}", rectifier=rectifier, benchmark="own", split="own", metrics=found)
    write_sweep(tmp_path, [f"{place:012x}" for place in range(2)], splits=())
    folder = report.build("tiny", tmp_path)
    text = (folder / "tables/main.md").read_text()
    cells = [row[1:3] for row in grid(text) if row[0] in ("GA", "w/ GRU")]
    assert cells == [["**0.0000**", "0.0000"]] * 2
    assert tables_format.BOLD["method"] in text


def test_latex(frames: Frames) -> None:
    text = tables_format.to_latex(main.printed(main.main_table(*frames), TOFU))
    assert r"\begin{tabular}{lrrrr}" in text
    assert r"\multicolumn{2}{c}{forget05 (5\%)} & \multicolumn{2}{c}{forget10 (10\%)} \\" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text
    assert r"\quad w/ GRU & -23.0000 $\pm$ 1.4142 & \textbf{0.1100} $\pm$ 0.0141 &" in text
    assert text.count(r"\midrule") == 4
    assert {line.count("&") for line in text.splitlines() if line.startswith(("GA", r"\quad", "Orig"))} == {4}


def test_csv_holds_the_numbers(frames: Frames, tmp_path: Path) -> None:
    (tmp_path / "main.csv").write_text(main.to_csv(main.main_table(*frames)))
    table = pd.read_csv(tmp_path / "main.csv").set_index(["method", "rectifier"])
    assert table.loc[("npo", "gru"), "forget05.forget_quality.mean"] == -4.0
    assert table.loc[("npo", "gru"), "label"] == "w/ GRU"


def test_chosen_settings_name_what_else_varies(tmp_path: Path) -> None:
    trials = [
        write_trial(tmp_path, f"{place:012x}", fq=-5.0, mu=0.1 * place, lr=lr) for place, lr in enumerate([1e-3, 1e-4])
    ]
    trials.append(write_trial(tmp_path, "f" * 12, "npo", GRU | {"tau": 0.5}, fq=-4.0, mu=0.85))
    write_sweep(tmp_path, trials)
    chosen = main.chosen_settings(runs.load("tiny", tmp_path), runs.references("tiny", tmp_path))
    assert chosen["training.lr"].tolist() == ["0.0001", "0.001"]
    assert chosen[["Method", "gamma", "tau"]].values.tolist() == [["GA", "—", "—"], ["NPO w/ GRU", "0.8", "0.5"]]
    assert chosen["Keeps 90% of MU"].tolist() == ["no (11.1%)", "yes (94.4%)"]
    assert chosen["Chosen from"].tolist() == ["2", "1"]
