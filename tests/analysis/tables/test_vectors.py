"""Task vectors and UWC in reports: strengths, the paper's tables of both, and the verdict."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.stats.rectifier_comparison import compare_rectifiers
from analysis.tables import detail_tables, paper_tables
from analysis.tables.paper_tables import FilledTable
from analysis.tables.printing import to_latex, to_markdown
from tests.analysis.tables.test_layouts import main_sheet, paper_sheets
from tests.support import sweep_store
from tests.support.sweep_store import GRU, NONE, SweepResults, calibrated, grid, make_sweep

store, results = sweep_store.vectors_store, sweep_store.vectors_results


@pytest.fixture(scope="module")
def sheets(results: SweepResults) -> dict[str, FilledTable]:
    return {sheet.layout.table: sheet for sheet in paper_sheets(results)}


def test_strengths_are_read_and_chosen(results: SweepResults) -> None:
    trials = results.runs.set_index(["method", "strength", "seed"])
    assert trials.loc[("tru", 24.0, 1.0), "relative_change"] == 0.06
    assert trials.loc[("tv", 40.0, 0.0), ["task_vector.strength", "direction"]].tolist() == [40.0, "d1ec7104aaaa"]
    assert results.runs.loc[results.runs["method"] == "ga", "strength"].isna().all()
    chosen = detail_tables.tabulate_chosen_settings(results).set_index("Method")
    assert chosen.loc[["TRU", "TV", "NPO w/ GRU"], "strength"].tolist() == ["12", "1", "—"]
    assert chosen.loc["TRU", ["gamma", "tau", "Chosen from"]].tolist() == ["—", "—", "4"]
    rows = main_sheet(results).table.cells.loc[["TV", "TRU"]]
    assert not any(cell.bold for cell in rows.to_numpy().flat), "task vectors are not paired with GRU"
    assert set(compare_rectifiers(results).differences["method"]) == {"ga", "npo"}


def test_table_without_retain_data(sheets: dict[str, FilledTable]) -> None:
    table = sheets["tofu_retain_free"].table
    rows = {row[0]: row[1:] for row in grid(to_markdown(table))[2:]}
    assert list(rows) == ["Original", "Retrain", "TV", "GA", "WGA", "NPO", "TRU"]
    assert rows["TRU"] == ["-9.50 ± 0.71", "0.82 ± 0.00"]
    assert rows["TV"][1] == "**0.87** ± 0.00"  # the references compete with no method
    assert rows["NPO"][0] == "**-6.50** ± 0.71"
    assert sum("**" in cell for row in rows.values() for cell in row) == 2
    assert r"TRU & -9.50 $\pm$ 0.71 & 0.82 $\pm$ 0.00 \\" in to_latex(table)


@pytest.mark.parametrize(
    ("objective", "kept"),
    [
        ({"preset": "paper", "retain_coefficient": None}, True),
        ({"preset": "open-unlearning", "retain_coefficient": None}, False),
        ({"preset": "open-unlearning", "retain_coefficient": 0.0}, True),
        ({"preset": "paper", "retain_coefficient": 1.0}, False),
    ],
)
def test_weighted_ascent_with_a_retain_term_is_not_retain_free(
    tmp_path: Path, objective: dict[str, Any], kept: bool
) -> None:
    given = {"fq": -4.0, "mu": 0.5, "objective": objective}  # of which GA reads nothing
    results = make_sweep(tmp_path, *({"method": method, **given} for method in ("wga", "ga")))
    methods = paper_tables.select_retain_free_trials(results.runs)["method"].tolist()
    assert methods == (["wga", "ga"] if kept else ["ga"])


def test_uwc_tables(sheets: dict[str, FilledTable]) -> None:
    tables = {method: grid(to_markdown(sheets[f"tofu_uwc_{method}"].table))[2:] for method in ("ga", "npo")}
    shares = [f"({share})" for share in ("85%", "90%", "95%")]
    labels = [f"{name} {share}" for share in shares for name in ("GA", "w/ GRU")]
    assert [row[0] for row in tables["ga"]] == ["Original", *labels]
    assert tables["ga"][1][1:] == ["-18.3 ± 0.3", "0.77 ± 0.00"]
    assert tables["ga"][2][1].startswith("**-13.9**")
    assert tables["npo"][2][1:] == ["**-11.5**† ± 0.7", "0.80 ± 0.00"]  # more than asked for, unmixed
    assert tables["npo"][5][1] == "-16.4† ± 0.2"  # missed by one seed
    assert not any("**" in row[2] for rows in tables.values() for row in rows)  # MU is what all are brought to
    notes = {method: " ".join(sheets[f"tofu_uwc_{method}"].table.notes) for method in ("ga", "npo")}
    assert ("† not at equal MU" in notes["ga"], "† not at equal MU" in notes["npo"]) == (False, True)
    csv = sheets["tofu_uwc_npo"].csv_frame.set_index(["rectifier", "target", "metric"])["value"].to_dict()
    assert csv["gru", "0.95", "weight"] == pytest.approx(np.sqrt(0.05 * 0.9 / 0.1))
    assert [csv["gru", "0.95", name] for name in ("reached", "monotone", "unmixed")] == [0.5, 0.5, 0]
    assert csv["gru", "0.85", "unmixed"] == 1


def test_uwc_shows_the_setting_of_the_main_table(tmp_path: Path) -> None:
    """A setting that is worse uncalibrated stays out, however good its mixture; a mixture without FQ is a dash."""
    lost = calibrated(-14.0, 0.1)
    for point in (*lost["targets"], *lost["evaluations"]):
        point["forget_quality"] = None
    other = GRU | {"gamma": 0.05}
    results = make_sweep(
        tmp_path,
        {"rectifier": NONE, "fq": -14.0, "mu": 0.1, "calibration": calibrated(-14.0, 0.1)},
        {"rectifier": GRU, "fq": -9.0, "mu": 0.5, "calibration": calibrated(-20.0, 0.5)},
        {"rectifier": other, "fq": -9.0, "mu": 0.4, "calibration": calibrated(-1.0, 0.5)},
        {"method": "gd", "fq": -9.0, "mu": 0.1, "calibration": lost},
        splits=("forget05",),
    )
    tables = {sheet.layout.table: sheet for sheet in paper_sheets(results)}
    values = tables["tofu_uwc_ga"].csv_frame.set_index(["rectifier", "target", "metric"])["value"].to_dict()
    assert values["gru", "0.85", "forget_quality"] < -20 < values["none", "0.85", "forget_quality"]
    assert grid(to_markdown(tables["tofu_uwc_gd"].table))[-1] == ["GD (95%)", "—", "0.85"]
