"""The paper's published numbers: as printed, attainable, and in agreement with one another."""

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ks_2samp

from analysis import paper
from analysis.paper import PAPER_ERRATA, TABLE_NAMES, Erratum
from trainables.config.method_tables import METHODS

KEY = ["benchmark", "backbone", "split", "method", "rectifier", "gamma", "tau", "target", "metric"]
ROWS = {"forget05": 200, "forget10": 300}  # that TOFU's evaluation compares: min(300, size of the forget set)
QUESTIONS = {"wmdp_bio": 1273, "wmdp_cyber": 1987}
COUNTS = dict(zip(TABLE_NAMES, (56, 128, 33, 36, 6, 54, 70, 12, 28, 28), strict=True))
FQ, MU = "forget_quality", "model_utility"
TOFU = [table for table in TABLE_NAMES if table.startswith("tofu")]

Row = dict[str, str]


@cache
def printed(table: str) -> list[Row]:
    with Path(paper.__file__).with_name(f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def pick(table: str, **where: str) -> list[Row]:
    return [row for row in printed(table) if where.items() <= row.items()]


def one(table: str, **where: str) -> Row:
    rows = pick(table, **where)
    assert len(rows) == 1, f"{where} selects {len(rows)} rows of {table}"
    return rows[0]


def value(table: str, **where: str) -> str:
    """The printed value of the one row that `where` selects, its erratum corrected."""
    row = one(table, **where)
    corrected = [e.corrected for e in PAPER_ERRATA if e.table == table and e.where.items() <= row.items()]
    return next(filter(None, corrected), row["value"])


@cache
def ks_lattice(rows: int) -> np.ndarray:
    """ln p for D = k / rows; left out is 0 < D < 0.02, where scipy's exact sum may fail and ln p is 0 to 4 decimals."""
    sample = np.arange(rows)
    places = (0, *range(rows // 50, rows + 1))
    return np.log([ks_2samp(sample, sample + k, method="exact").pvalue for k in places])  # type: ignore[attr-defined]


@cache
def attainable(metric: str, rows: int, decimals: int) -> frozenset[str]:
    """Every value that the metric can take on `rows` rows, as it would be printed."""
    lattice = ks_lattice(rows) if metric == FQ else np.arange(rows + 1) / rows
    return frozenset(f"{point:.{decimals}f}" for point in lattice)


def on_lattice(text: str, metric: str, rows: int) -> bool:
    return text in attainable(metric, rows, len(text.partition(".")[2]))


def lattice_rows(row: Row) -> int | None:
    return ROWS[row["split"]] if row["metric"] == FQ else QUESTIONS.get(row["metric"])


@pytest.mark.parametrize("table", [*TOFU, "wmdp"])
def test_values_are_attainable_but_for_the_errata(table: str) -> None:
    sized = [(row, rows) for row in printed(table) if (rows := lattice_rows(row)) is not None]
    assert sized
    off = [row for row, rows in sized if not on_lattice(row["value"], row["metric"], rows)]
    known = [one(table, **erratum.where) for erratum in PAPER_ERRATA if erratum.table == table]
    assert sorted(off, key=str) == sorted(known, key=str)


@pytest.mark.parametrize("erratum", PAPER_ERRATA, ids=[f"{e.table}:{e.printed}" for e in PAPER_ERRATA])
def test_erratum_is_off_the_lattice_as_printed_and_on_it_as_corrected(erratum: Erratum) -> None:
    row = one(erratum.table, **erratum.where)
    rows = lattice_rows(row)
    assert rows is not None
    assert row["value"] == erratum.printed
    assert not on_lattice(erratum.printed, row["metric"], rows)
    if erratum.corrected is not None:
        assert on_lattice(erratum.corrected, row["metric"], rows)


LLAMA = {"backbone": "Llama-2-7B-chat", "split": "forget05"}
SAME = [
    *[("tofu_tau", {"tau": "none"}, "tofu_main", {}, method) for method in ("ga", "npo", "gd")],
    *[("tofu_tau", {"tau": "1.0"}, "tofu_gamma", {"gamma": "0.8"}, method) for method in ("ga", "npo")],
    *[("tofu_ablation", {}, "tofu_tau", {"tau": "100"}, method) for method in ("ga", "npo")],
    ("tofu_main", {}, "tofu_gamma", {"gamma": "0.05"}, "gd"),
    *[("tofu_ablation", {"rectifier": "none"}, "tofu_main", {"rectifier": "none"}, method) for method in ("ga", "npo")],
]


@pytest.mark.parametrize("metric", [FQ, MU])
@pytest.mark.parametrize(("left", "left_where", "right", "right_where", "method"), SAME)
def test_cells_that_are_one_run_agree(
    left: str, left_where: dict[str, str], right: str, right_where: dict[str, str], method: str, metric: str
) -> None:
    common = LLAMA | {"rectifier": "gru", "method": method, "metric": metric}
    assert value(left, **common | left_where) == value(right, **common | right_where)


@pytest.mark.parametrize("table", TABLE_NAMES)
def test_tables_are_loaded_as_their_files_are(table: str) -> None:
    frame, rows = paper.load_table(table), printed(table)
    assert len(frame) == len(rows) == COUNTS[table]
    assert frame["value"].tolist() == [float(row["value"]) for row in rows]
    assert frame["bold"].tolist() == [row["bold"] == "true" for row in rows]
    assert frame[["gamma", "tau"]].to_numpy().tolist() == [[row["gamma"], row["tau"]] for row in rows]
    assert len({tuple(row[name] for name in KEY) for row in rows}) == len(rows)
    assert {row["method"] for row in rows} <= {*METHODS, "original", "retain"}


def test_every_file_is_a_table_and_others_are_refused() -> None:
    assert {path.stem for path in Path(paper.__file__).parent.glob("*.csv")} == {*TABLE_NAMES, "errata"}
    with pytest.raises(ValueError, match=r"'tofu_mian'.*tofu_main, .*tofu_uwc_npo"):
        paper.load_table("tofu_mian")
