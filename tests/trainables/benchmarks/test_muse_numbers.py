"""MUSE's numbers from scores: areas, PrivLeak, answers cut at a stop word; no model and no rows."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.benchmarks import metrics, muse
from trainables.common.errors import TrialStopped
from trainables.config.settings import Benchmark, Dialect

SCORES = st.lists(st.sampled_from([-4.0, -3.5, -2.0, -0.1]), min_size=1, max_size=9)


def on(dialect: Dialect) -> Benchmark:
    return Benchmark(name="muse", data="nowhere/here", split="news", dialect=dialect)


@given(member=SCORES, stranger=SCORES)
def test_area_counts_pairs_and_half_of_the_ties(member: list[float], stranger: list[float]) -> None:
    pairs = [(m, s) for m in member for s in stranger]
    assert metrics.auc(member, stranger) == pytest.approx(sum((s > m) + (s == m) / 2 for m, s in pairs) / len(pairs))


@pytest.mark.parametrize(
    ("found", "mean"),
    [([-1.0, -5.0, -2.0, -4.0, -3.0], -4.5), ([-1.0, -3.0], -3.0), ([-0.5], -0.5), ([-1.0] * 7 + [-8.0] * 3, -6.25)],
)
def test_the_lowest_two_fifths(found: list[float], mean: float) -> None:
    """Two of five, at least one of two and of one, four of ten."""
    assert metrics.min_k_mean(found) == mean


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("in May\n\nQuestion: who", "in May"),
        ("in May\nQuestion: who\n\n", "in May"),
        ("in May Question: who", "in May "),
        ("in May\n", "in May\n"),
        ("", ""),
    ],
)
def test_an_answer_ends_at_the_first_stop_word(text: str, left: str) -> None:
    assert muse.until_stop(text) == left


def scored(member: list[float], stranger: list[float]) -> list[dict[str, Any]]:
    f1 = {"verbmem_f": [0.2, 0.4], "knowmem_f": [0.5, 1.0], "knowmem_r": [0.25, 0.25]}
    found = [{"task": task, "rougeL_f1": value} for task, values in f1.items() for value in values]
    found += [{"task": "privleak_forget", "min_k": value} for value in member]
    return found + [{"task": "privleak_holdout", "min_k": value} for value in stranger]


def test_numbers_of_both_dialects() -> None:
    """A model that remembers every forget text: AUC 0. MUSE's percent, open-unlearning's fractions."""
    records = scored([-0.1, -0.2], [-3.0, -4.0])
    paper, other = (muse.aggregate(records, on(dialect)) for dialect in get_args(Dialect))
    alike = {"privleak": -100.0, "privleak_auc": 0.0}
    percents = {"verbmem_f": 30.0, "knowmem_f": 75.0, "knowmem_r": 25.0}
    assert paper == pytest.approx(percents | alike | {"privleak_reference": 0.4772})
    fractions = {"verbmem_f": 0.3, "knowmem_f": 0.75, "knowmem_r": 0.25}
    assert other == pytest.approx(fractions | alike | {"privleak_reference": 0.5})


@pytest.mark.parametrize(
    ("dialect", "split", "reference", "privleak"),
    [
        ("paper", "news", None, (0.75 / 0.4772 - 1) * 100),
        ("paper", "books", None, (0.75 / 0.5393 - 1) * 100),
        ("open-unlearning", "news", None, 50.0),
        ("open-unlearning", "books", None, 50.0),
        ("paper", "news", 0.75, 0.0),
        ("open-unlearning", "news", 0.6, 25.0),
        ("paper", "news", 0.0, None),
    ],
)
def test_privleak_is_the_area_against_the_retain_models(
    dialect: Any, split: str, reference: float | None, privleak: float | None
) -> None:
    """Three of four pairs have the hold-out text above the forget text. There is no ratio to an area of 0."""
    benchmark = Benchmark(name="muse", data="nowhere/here", split=split, dialect=dialect)
    found = muse.aggregate(scored([-1.0, -3.0], [-2.0, -0.5]), benchmark, reference)
    assert found["privleak_auc"] == 0.75
    assert found["privleak"] == pytest.approx(privleak, abs=1e-6)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_log_likelihood_that_is_not_finite_stops_the_trial(value: float) -> None:
    with pytest.raises(TrialStopped, match="not finite"):
        muse.aggregate(scored([value, -3.0], [-2.0, -0.5]), on("paper"))
