"""The main table of an invented sweep: numbers, what is bold, Markdown, LaTeX and CSV, the chosen settings."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.tables import detail_tables, table_definitions
from analysis.tables.markdown_latex import to_markdown
from analysis.tables.paper_tables import fill_table
from tests.support import sweep_store
from tests.support.sweep_store import GRU, NONE, Results, grid, make_sweep
from tests.support.table_sheets import main_sheet

store, results = sweep_store.tiny_store, sweep_store.tiny_results


def test_markdown(results: Results) -> None:
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
def two_rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, pd.DataFrame]:
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
def test_bold(
    two_rows: tuple[Results, pd.DataFrame], metric: str, plain: float, gru: float, bold: list[bool], texts: list[str]
) -> None:
    results, frame = two_rows
    values = pd.Series([{"none": plain, "gru": gru}[name] for name in frame["rectifier"]], frame.index)
    values = values.where(frame["metric"] == metric, frame["value"])
    table = fill_table(table_definitions.main_layout(results), frame.assign(value=values)).table
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
    chosen = detail_tables.list_chosen_settings(make_sweep(tmp_path, *trials, npo))
    assert chosen["training.lr"].tolist() == ["0.0001", "0.001"]
    assert chosen[["Method", "gamma", "tau"]].values.tolist() == [["GA", "—", "—"], ["NPO w/ GRU", "0.8", "0.5"]]
    assert chosen["Keeps 90% of MU"].tolist() == ["no (11.1%)", "yes (94.4%)"]
    assert chosen["Chosen from"].tolist() == ["2", "1"]
