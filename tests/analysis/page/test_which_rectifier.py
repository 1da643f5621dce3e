"""A report's part on which rectifier helps: its words follow from the numbers, its tables are complete."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import report
from analysis.page import detail_sections
from analysis.prose.which_rectifier import explain_rectifiers, summarise_rectifiers
from analysis.stats.rectifier_comparison import EQUAL, compare
from analysis.stats.sweep_results import Results
from analysis.tables.rectifier_tables import list_rectifiers
from tests.support.arena_store import NAMES, Value, write_arena
from trainables.storage.folder_storage import Storage

METHODS = {"ga": NAMES, "npo": NAMES}


def shifted(*, tuned: bool = False, **shifts: float) -> Value:
    """Return values that a rectifier shifts by so much; `tuned`: GRU is better at 2e-3, the others at 1e-3."""

    def value(method: str, name: str, seed: int, lr: float) -> tuple[float, float]:
        dice = np.random.default_rng([seed, *name.encode(), *method.encode()])
        best = 3.0 if tuned and lr == (2e-3 if name == "gru" else 1e-3) else 0.0
        return -25 + shifts.get(name, shifts.get(f"{method}_{name}", 0.0)) + best + dice.normal(0, 0.3), 0.85

    return value


SEEDS = "Over 10 seeds, each at its own best settings"
TWO = "2 comparisons (an objective on a split each)"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (shifted(), "clearly changed by none of them"),
        (shifted(gru=5.0, ga_blur=4.0), "better with GRU for GA and NPO, with BLUR for GA"),
        (shifted(gru=-5.0, npo_blur=4.0), "better with BLUR for NPO, worse with GRU for GA and NPO"),
        (shifted(gru=-5.0, sago=-5.0), "worse with GRU and SAGO for GA and NPO"),
    ],
)
def test_the_sentence_counts_what_the_tests_find(tmp_path: Path, value: Value, words: str) -> None:
    found = compare(write_arena(tmp_path, value, methods=METHODS))
    same = "MU is clearly changed by none of them (p below 0.05 after Holm)."
    assert summarise_rectifiers(found) == [f"{SEEDS}, in {TWO}, against none: FQ is {words}; {same}"]


@pytest.mark.parametrize(("seeds", "verdict"), [(3, False), (6, False), (7, True)])
def test_too_few_seeds_give_no_verdict(tmp_path: Path, seeds: int, verdict: bool) -> None:
    """Three rectifiers take seven: 3 x 2 / 2^6 is above 5 %, 3 x 2 / 2^7 below."""
    found = compare(write_arena(tmp_path, shifted(gru=5.0), seeds={1e-3: range(seeds)}))
    (text,) = summarise_rectifiers(found)
    start = f"Over {seeds} seeds, each at its own best settings"
    none = ": no verdict. Among 3 rectifiers a significant difference takes 7 seeds."
    better = ", against none: FQ is better with GRU; MU is clearly changed by none of them (p below 0.05 after Holm)."
    assert text == start + (better if verdict else none)


def test_what_the_section_says_beside(tmp_path: Path) -> None:
    def value(method: str, name: str, seed: int, lr: float) -> tuple[float, float] | None:
        gone = name == "blur" and seed == 4
        quality, _ = shifted(tuned=True)(method, name, seed, lr) or (0.0, 0.0)
        return None if gone else (quality, 0.5 if name == "sago" else 0.85)

    seeds = {1e-3: range(10), 2e-3: range(10)}
    found = compare(write_arena(tmp_path, value, seeds=seeds))
    first, second, cost, below, lacking = explain_rectifiers(found)
    assert first.startswith("Over 9 to 10 seeds, each at its own best training.lr, against none: FQ is clearly")
    assert second.startswith("Over 9 to 10 seeds, all at the training.lr chosen without a rectifier, against none: FQ")
    assert "FQ is worse with GRU" in second
    assert cost == "A training step takes 1 times as long as without a rectifier."
    assert below.startswith("10 of the 49 models keep less than 90% of the original model's MU: ")
    assert lacking == "Without a pair: NPO w/ BLUR on forget05: seeds 4 (with it: diverged)."


def test_tables_rank_and_name_all(tmp_path: Path) -> None:
    seeds = {1e-3: range(10), 2e-3: range(10)}
    found = compare(write_arena(tmp_path, shifted(tuned=True, gru=5.0, sago=-5.0), seeds=seeds))
    table = list_rectifiers(found, found.goals[0])
    assert table["Settings"].tolist() == ["own best"] * 4 + ["as none"] * 4
    assert table["Rectifier"].tolist()[0] == "GRU"
    assert table["Rectifier"].tolist()[3] == "SAGO"
    assert table.loc[table["Rectifier"] == "none", "Change"].tolist() == ["—", "—"]
    row = table.iloc[0]
    rows = found.differences.loc[(found.differences["rectifier"] == "gru") & (found.differences["basis"] != EQUAL)]
    expected = rows.loc[rows["metric"] == "forget_quality"].iloc[0]
    assert row["Change"] == f"{expected['difference']:+.{found.goals[0].digits}f}"
    assert float(row["Adjusted p"]) == pytest.approx(expected["adjusted"], rel=0.06)
    assert {"Rank", "FQ ↑", "95% interval", "d_z", "n", "s a step"} <= set(table)
    assert not {"GB", "Unmixed", "Below floor"} & set(table), "nothing is known of these, or it is 0 everywhere"


def write_report(folder: Path) -> str:
    made = report.build("arena", folder, output=folder / "report")
    return (made / "index.html").read_text(encoding="utf-8")


def test_the_report_has_the_part_where_there_are_several(tmp_path: Path, drawn_figures: None) -> None:
    results: Results = write_arena(tmp_path, shifted(gru=5.0), methods=METHODS)
    page = write_report(tmp_path)
    assert "<summary>Which rectifier helps</summary>" in page
    sentence = summarise_rectifiers(compare(results))[0]
    assert (tmp_path / "report/tables/verdict.md").read_text().splitlines()[-1] == sentence
    rows = pd.read_csv(tmp_path / "report/tables/rectifiers.csv")
    assert set(rows["rectifier"]) == set(NAMES[1:])
    assert {"gains", "low", "adjusted", "effect", "slower", "memory"} <= set(rows)
    assert set(pd.read_csv(tmp_path / "report/tables/rectifier_ranks.csv")["rectifier"]) == set(NAMES)


@pytest.mark.parametrize("names", [("none", "gru"), ("clip", "gru", "sago")])
def test_one_rectifier_or_no_plain_method_has_no_such_part(
    tmp_path: Path, names: tuple[str, ...], drawn_figures: Callable[[], None]
) -> None:
    """What GRU alone changes is the verdict's, which is not said twice."""
    results = write_arena(tmp_path, shifted(), names=names, seeds={1e-3: range(3)})
    assert detail_sections.Report(tmp_path, results, Storage(tmp_path)).rectifiers is None
    assert "Which rectifier helps" not in write_report(tmp_path)
