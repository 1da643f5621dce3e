"""A sweep's results in the paper's layouts: cells, the paper's numbers with them, and what is missing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.labels import DASH
from analysis.tables import detail_tables, paper_tables, table_definitions
from analysis.tables.paper_tables import FilledTable, fill_table
from analysis.tables.printing import PrintedTable, TableCell, to_markdown
from tests.support import sweep_store
from tests.support.benchmark_store import write_store as write_benchmark
from tests.support.sweep_store import GRU, NONE, SweepResults, grid, make_sweep, read

LLAMA = "Llama-2-7B-chat"


def main_sheet(results: SweepResults) -> FilledTable:
    """Return a sweep's main table."""
    return fill_table(table_definitions.make_main_layout(results), results.tidy_frame)


def paper_sheets(results: SweepResults, with_paper: bool = False) -> list[FilledTable]:
    return paper_tables.fill_paper_tables({"sweep": results}, with_paper)


def find_row(table: PrintedTable, label: str, below: int = 0) -> list[TableCell]:
    """Return the cells of the row so many lines below the one with this label."""
    return list(table.cells.iloc[list(table.cells.index).index(label) + below])


def write_llama(store: Path, backbone: str = LLAMA) -> SweepResults:
    """GA on both splits without and with GRU, two seeds; WGA without GRU on forget05; a failed NPO."""
    trials = [
        {"rectifier": rectifier, "fq": fq + shift + seed, "mu": mu + seed / 10, "seed": seed, "split": split}
        for split, shift in (("forget05", 0.0), ("forget10", 2.0))
        for rectifier, fq, mu in ((NONE, -16.0, 0.0), (GRU, -3.5, 0.5))
        for seed in (0, 1)
    ]
    wga, npo = {"method": "wga", "fq": -7.0, "mu": 0.4}, {"method": "npo", "status": "out_of_memory"}
    return make_sweep(store, *trials, wga, npo, name="tofu_llama", backbone=backbone)


def test_cells_from_runs_and_the_papers_beside(tmp_path: Path) -> None:
    (sheet,) = paper_sheets(write_llama(tmp_path), with_paper=True)
    assert sheet.layout.table == "tofu_main"
    table = sheet.table
    heads = [(split, goal) for split in ("forget05", "forget10") for goal in ("FQ ↑", "MU ↑")]
    assert list(table.cells.columns) == heads
    plain, rectified = find_row(table, "GA"), find_row(table, "GA", 1)
    # means of -16 and -15, of 0 and 0.1; the paper's are -16.9281 and 0.0000
    assert plain[0] == TableCell("-15.5000", False, "", " ± 0.7071", "paper -16.9281, +1.4281")
    assert plain[1].beside == "paper 0.0000, +0.0500"
    assert rectified[0] == TableCell("-3.0000", True, "", " ± 0.7071", "paper -3.5161, +0.5161")
    assert rectified[3] == TableCell("0.5500", True, "", " ± 0.0707", "paper 0.3108, +0.2392")
    assert find_row(table, "WGA")[0].spread == " (n = 1)"
    assert {cell.text for cell in find_row(table, "NPO")} == {DASH}
    ga = sheet.numbers.loc[(sheet.numbers["method"] == "ga") & (sheet.numbers["rectifier"] == "none")]
    assert ga["difference"].round(4).tolist()[:2] == [1.4281, 0.05]


def test_another_model_or_dialect_has_nothing_of_the_papers_beside(tmp_path: Path) -> None:
    for backbone in ("Llama-3.2-1B-Instruct", ""):
        table = paper_sheets(write_llama(tmp_path / f"at{backbone}", backbone), with_paper=True)[0].table
        assert not any(cell.beside or cell.marks for cell in table.cells.to_numpy().flat)
        assert list(table.cells.index)[2:] == ["GA", "w/ GRU", "WGA", "NPO"]
    results = write_llama(tmp_path)
    other = replace(results, runs=results.runs.assign(**{"benchmark.dialect": "open-unlearning"}))
    assert to_markdown(paper_sheets(other, True)[0].table) == to_markdown(paper_sheets(results)[0].table)


def write_line(store: Path, gamma: float) -> SweepResults:
    """GA with GRU over tau at one gamma, and NPO at one tau only."""
    points = (("ga", 0.001, 0.0), ("ga", 1.0, -1.0), ("ga", None, -2.0), ("npo", 1.0, -9.0))
    trials = [
        {"method": method, "rectifier": GRU | {"gamma": gamma, "tau": tau}, "fq": fq, "mu": 0.5}
        for method, tau, fq in points
    ]
    return make_sweep(store, *trials, name="tofu_tau", splits=("forget05",), backbone=LLAMA)


def test_a_line_over_tau(tmp_path: Path) -> None:
    (found,) = paper_sheets(write_line(tmp_path, 0.8), with_paper=True)
    table = found.table
    assert found.layout.table == "tofu_tau"
    assert [leaf for *_, leaf in table.cells.columns] == ["τ 0.001", "τ 1", "τ none"]
    assert [cell.text for cell in find_row(table, "GA w/ GRU, FQ ↑")] == ["0.0000", "-1.0000", "-2.0000"]
    assert find_row(table, "GA w/ GRU, FQ ↑")[2].beside == "paper -3.5161, +1.5161"
    assert [cell.text for cell in find_row(table, "NPO w/ GRU, FQ ↑")] == [DASH, "-9.0000", DASH]
    assert any("tau varies at one gamma: GA 0.8, NPO 0.8." in note for note in table.notes)
    (found,) = paper_sheets(write_line(tmp_path / "other", 0.3), with_paper=True)
    assert not any(found.numbers["paper"].notna()), "at another gamma it is not the paper's"


def test_a_misprint_is_mended_beside_our_number(tmp_path: Path) -> None:
    """The paper prints 14.0316 for GD at tau 0.1, without the minus sign."""
    trials = [
        {"method": "gd", "rectifier": GRU | {"gamma": 0.05, "tau": tau}, "fq": fq, "mu": 0.5}
        for tau, fq in ((0.1, -13.0), (1.0, -15.0))
    ]
    results = make_sweep(tmp_path, *trials, name="tofu_tau", splits=("forget05",), backbone=LLAMA)
    (found,) = paper_sheets(results, with_paper=True)
    cells = find_row(found.table, "GD w/ GRU, FQ ↑")
    assert [cell.beside for cell in cells] == ["paper -14.0316¶, +1.0316", "paper -15.1577, +0.1577"]
    assert any("the paper prints: 14.0316 (the minus sign is missing" in note for note in found.table.notes)


def write_ablation(store: Path) -> str:
    clip = {"name": "clip", "gamma": None, "tau": 100.0}
    trials = [{"rectifier": rectifier, "fq": -9.0, "mu": 0.1} for rectifier in (NONE, clip, GRU)]
    make_sweep(store, *trials, name="tofu_ablation", splits=(), backbone=LLAMA)
    return "tofu_ablation"


@pytest.mark.parametrize(
    ("write", "names"),
    [
        (lambda store: sweep_store.write_store(store) and "tiny", ["tofu_main"]),
        (
            lambda store: sweep_store.write_vectors(store) and "vectors",
            ["tofu_retain_free", "tofu_main", "tofu_uwc_ga", "tofu_uwc_npo"],
        ),
        (write_ablation, ["tofu_main", "tofu_ablation"]),
        (lambda store: write_benchmark(store, "wmdp") and "wmdp", ["wmdp"]),
        (lambda store: write_benchmark(store, "muse") and "muse", ["muse"]),
        (lambda store: write_benchmark(store, "own") and "own", []),
    ],
)
def test_a_sweep_has_the_tables_of_what_it_varied(
    write: Callable[[Path], str], names: list[str], tmp_path: Path
) -> None:
    write(tmp_path)
    sheets = paper_sheets(read(tmp_path), with_paper=True)
    assert [one.layout.table for one in sheets] == names


store, results = sweep_store.tiny_store, sweep_store.tiny_results


def test_markdown(results: SweepResults) -> None:
    rows = grid(to_markdown(main_sheet(results).table))
    assert rows[0] == ["Method", "forget05 FQ ↑", "forget05 MU ↑", "forget10 FQ ↑", "forget10 MU ↑"]
    assert rows[2] == ["Original", "-21.4000", "0.9000", "-21.4000", "0.9000"]
    assert rows[3] == ["Retrain", "0.0000", "0.8800", "0.0000", "0.8800"]
    assert rows[4][:3] == ["GA", "**-22.0000** (n = 1)", "0.0000 (n = 1)"]
    assert rows[5][:3] == ["w/ GRU", "-23.0000 ± 1.4142", "**0.1100** ± 0.0141"]
    assert [row[0] for row in rows[6:]] == ["GD", "w/ GRU", "NPO", "w/ GRU"]
    csv = main_sheet(results).csv_frame.set_index(["method", "rectifier", "split", "metric"])
    assert csv.loc[("gd", "gru", "forget05", "forget_quality"), ["value", "n"]].tolist() == [-8.0, 2]


@pytest.fixture(scope="module")
def two_rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[SweepResults, pd.DataFrame]:
    """A sweep of GA without and with GRU, and its tidy frame, the values of which tests replace."""
    trials = [{"rectifier": rectifier, "fq": -1.0, "mu": 0.5} for rectifier in (NONE, GRU)]
    results = make_sweep(tmp_path_factory.mktemp("pair"), *trials, splits=())
    return results, results.tidy_frame


@pytest.mark.parametrize(
    ("metric", "plain", "gru", "bold", "texts"),
    [
        ("forget_quality", 0.5, 0.6, [False, True], ["0.5000", "0.6000"]),
        ("forget_quality", 0.50001, 0.50002, [True, True], ["0.5000", "0.5000"]),  # a tie as printed
        ("forget_quality", -0.00001, 0.0, [True, True], ["0.0000", "0.0000"]),
        ("forget_quality", np.nan, 0.6, [False, False], ["—", "0.6000"]),  # nothing to compare with
        ("model_utility", 0.0, 0.0, [False, False], ["0.0000", "0.0000"]),  # two collapsed models: a tie at nothing
        ("model_utility", 0.00004, 0.0, [False, False], ["0.0000", "0.0000"]),  # as printed
        ("model_utility", 0.0001, 0.0, [True, False], ["0.0001", "0.0000"]),
    ],
)
def test_bold(two_rows: Any, metric: str, plain: float, gru: float, bold: list[bool], texts: list[str]) -> None:
    results, frame = two_rows
    values = pd.Series([{"none": plain, "gru": gru}[name] for name in frame["rectifier"]], frame.index)
    values = values.where(frame["metric"] == metric, frame["value"])
    table = fill_table(table_definitions.make_main_layout(results), frame.assign(value=values)).table
    cells = list(table.cells.iloc[-2:, int(metric == "model_utility")])
    assert [cell.bold for cell in cells] == bold
    assert [cell.text for cell in cells] == texts


def test_rectifiers_beside_gru_have_rows_of_their_own(tmp_path: Path) -> None:
    """The user's own too: `mine` has no entry in any table of names."""
    names = ("mine", "gru", "blur", "pcgrad", "agem", "clip", "none")
    trials = [{"rectifier": NONE | {"name": name}, "fq": -1.0, "mu": 0.5} for name in names]
    labels = main_sheet(make_sweep(tmp_path, *trials, splits=("forget05",))).table.cells.index
    rest = ["clip", "A-GEM", "PCGrad", "BLUR", "GRU", "mine"]
    assert list(labels) == ["Original", "Retrain", "GA", *(f"w/ {name}" for name in rest)]


def test_chosen_settings_name_what_else_varies(tmp_path: Path) -> None:
    trials = [{"fq": -5.0, "mu": mu, "lr": lr} for lr, mu in ((1e-3, 0.0), (1e-4, 0.1))]
    npo = {"method": "npo", "rectifier": GRU | {"tau": 0.5}, "fq": -4.0, "mu": 0.85}
    chosen = detail_tables.tabulate_chosen_settings(make_sweep(tmp_path, *trials, npo))
    assert chosen["training.lr"].tolist() == ["0.0001", "0.001"]
    assert chosen[["Method", "gamma", "tau"]].values.tolist() == [["GA", "—", "—"], ["NPO w/ GRU", "0.8", "0.5"]]
    assert chosen["Keeps 90% of MU"].tolist() == ["no (11.1%)", "yes (94.4%)"]
    assert chosen["Chosen from"].tolist() == ["2", "1"]
