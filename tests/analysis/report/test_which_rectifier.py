"""A report's part on which rectifier helps: its words follow from the numbers, its tables are complete."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import report
from analysis.report import verdict
from analysis.stats.rectifier_comparison import compare_rectifiers
from analysis.stats.sweep_results import Results
from tests.support.arena_store import NAMES, Value, write_arena

METHODS = {"ga": NAMES, "npo": NAMES}


def shifted(*, tuned: bool = False, **shifts: float) -> Value:
    """Return values that a rectifier shifts by so much; `tuned`: GRU is better at 2e-3, the others at 1e-3."""

    def value(method: str, name: str, seed: int, lr: float) -> tuple[float, float]:
        dice = np.random.default_rng([seed, *name.encode(), *method.encode()])
        best = 3.0 if tuned and lr == (2e-3 if name == "gru" else 1e-3) else 0.0
        return -25 + shifts.get(name, shifts.get(f"{method}_{name}", 0.0)) + best + dice.normal(0, 0.3), 0.85

    return value


@pytest.mark.parametrize(
    ("shifts", "better", "worse"),
    [({}, 0, 0), ({"gru": 5.0, "ga_blur": 4.0}, 3, 0), ({"gru": -5.0, "npo_blur": 4.0}, 1, 2)],
)
def test_the_sentence_counts_what_the_tests_find(
    tmp_path: Path, shifts: dict[str, float], better: int, worse: int
) -> None:
    value = shifted(tuned=False, **shifts)
    results = write_arena(tmp_path, value, methods=METHODS)
    told = verdict.write_verdict(compare_rectifiers(results))
    assert told.startswith(
        f"With a rectifier, FQ is clearly better in {better} of 6 comparisons and worse in {worse}, MU"
    )
    found = compare_rectifiers(results)
    table = verdict.tabulate_differences(found)
    assert [table["Clear?"].tolist().count(word) for word in ("better", "worse")] == [better, worse]
    assert set(table["Seconds of a step"]) == {"0.968 (x 1.00)"}
    rows = found.differences.set_index(["method", "rectifier", "metric"])
    (line,) = table.loc[(table["Method"] == "NPO w/ GRU") & (table["Goal"] == "FQ ↑")].to_dict("records")
    row = rows.loc[("npo", "gru", "forget_quality")]
    assert (line["Difference"], line["Adjusted p"]) == (f"{row['difference']:+.2f}", f"{row['adjusted']:.2g}")
    assert line["Seeds"] == "10"


@pytest.mark.parametrize(("seeds", "clear"), [(3, False), (6, False), (7, True)])
def test_too_few_seeds_give_no_verdict(tmp_path: Path, seeds: int, clear: bool) -> None:
    """Three rectifiers take seven: 3 x 2 / 2^6 is above 5 %, 3 x 2 / 2^7 below."""
    results = write_arena(tmp_path, shifted(gru=5.0), seeds={1e-3: range(seeds)})
    told = verdict.write_verdict(compare_rectifiers(results))
    assert ("FQ is clearly better in 1 of 3 comparisons and worse in 0" in told) == clear
    assert (f"No verdict on a rectifier yet: that takes 7 seeds, and here are {seeds} seeds" in told) == (seeds == 3)


def test_the_report_has_the_part_where_there_are_several(tmp_path: Path) -> None:
    results: Results = write_arena(tmp_path, shifted(gru=5.0), methods=METHODS)
    page = (report.build_report("arena", tmp_path, output=tmp_path / "report") / "index.html").read_text()
    first = page[page.index("<main>") : page.index("<h2>")]
    assert "What each rectifier changes" in first, "the first picture is of rectifiers"
    sentence = verdict.write_verdict(compare_rectifiers(results))
    assert (tmp_path / "report/tables/verdict.md").read_text().splitlines()[0] == sentence
    rows = pd.read_csv(tmp_path / "report/tables/rectifiers.csv")
    assert set(rows["rectifier"]) == set(NAMES[1:])
    assert {"gains", "low", "adjusted", "effect", "slower"} <= set(rows)
