"""What a report says of chance: paired tests over seeds, changes that count, equal utility."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import report, runs
from analysis.load.goals import TOFU
from analysis.prose import answer, verdict
from analysis.stats import selection, significance
from tests.support import sweep_store
from tests.support.sweep_store import GRU, NONE, calibrated, write_sweep, write_trial
from trainables.config.settings import Selection


def sweep_of(store: Path, plain: list[float], gru: list[float]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs and tests of GA at these FQs (a seed each, from 0), MU 0.85 without and 0.86 with GRU."""
    ids = []
    for name, rectifier, values, mu in (("plain", NONE, plain, 0.85), ("gru", GRU, gru, 0.86)):
        for seed, fq in enumerate(values):
            ids.append(write_trial(store, f"{name}{seed}", rectifier=rectifier, fq=fq, mu=mu, seed=seed))
    write_sweep(store, ids, splits=("forget05",))
    trials = runs.load("tiny", store)
    return trials, significance.tests(trials, selection.choose(trials, runs.references("tiny", store)), TOFU)


def test_five_seeds_are_tested_in_pairs(tmp_path: Path) -> None:
    """By the formula of the paired t: 4 degrees of freedom, 2.132 at p = 0.1, 2.776 at 0.05, 4.604 at 0.01."""
    gains = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    plain = [-9.0, -30.0, -14.0, -11.0, -20.0, -3.0]  # the sixth seed has no pair
    _, tests = sweep_of(tmp_path, plain, (np.array(plain[:5]) + gains).tolist())
    quality, utility = tests.to_dict("records")
    t = 3.0 / (np.std(gains, ddof=1) / math.sqrt(5))
    assert (quality["n"], quality["difference"]) == (5, pytest.approx(3.0))
    assert (quality["none"], quality["gru"]) == (pytest.approx(-16.8), pytest.approx(-13.8))  # of the five in common
    half = 2.776445 * np.std(gains, ddof=1) / math.sqrt(5)
    assert (quality["low"], quality["high"]) == pytest.approx((3.0 - half, 3.0 + half))
    assert 2.132 < t < 4.604
    assert 0.01 < quality["p"] < 0.1
    assert quality["adjusted"] == quality["p"]  # MU's differences are all equal: no test
    assert np.isnan([utility["p"], utility["low"], utility["high"]]).all()
    text = answer.describe_tests(tests, TOFU)
    assert text == (
        "1 of 1 differences are significant at 5% (two-sided paired t tests over n = 5 seeds, p adjusted by Holm for "
        "1 tests): FQ of GA on forget05 (better with GRU, p = 0.013). 1 more rest on fewer than 5 seeds, or on seeds "
        "that all differ alike: not tested."
    )


def test_from_five_seeds_on_one_that_disagrees_decides_nothing(tmp_path: Path) -> None:
    trials, tests = sweep_of(tmp_path, [-20.0] * 6, [-15.0, -15.1, -14.9, -15.0, -15.2, -20.1])
    chosen = selection.choose(trials, runs.references("tiny", tmp_path))
    row = significance.compare(chosen, tests).to_dict("records")[0]
    assert row["forget_quality_low"] > 0 > min(row["forget_quality_gains"])
    assert answer.change_signs(row, TOFU) == (1, 1)


def test_four_seeds_claim_nothing(tmp_path: Path) -> None:
    trials, tests = sweep_of(tmp_path, [-10.0, -10.1, -9.9, -10.0], [-1.0, -1.1, -0.9, -1.2])
    assert all(tests["p"].isna())
    assert answer.describe_tests(tests, TOFU) == (
        "No difference is called significant here: that takes 5 seeds on both sides, and there are at most 4."
    )
    page = (report.build("tiny", tmp_path) / "index.html").read_text()
    assert "No difference is called significant here" in page
    assert "FQ rose by 8.9500, from -10.0000 to -1.0500 (by seed +9.00, +9.00, +9.00, +8.80)" in page
    assert "(95% interval" not in page
    assert len(trials) == 8


def test_seeds_that_are_not_in_common_are_not_compared(tmp_path: Path) -> None:
    """GA's plain seeds are 0 to 5, with GRU 0 to 4: the verdict's numbers are of these."""
    plain = [-9.0, -30.0, -14.0, -11.0, -20.0, -3.0]
    trials, tests = sweep_of(tmp_path, plain, [value + 1 for value in plain[:5]])
    chosen = selection.choose(trials, runs.references("tiny", tmp_path))
    row = significance.compare(chosen, tests).to_dict("records")[0]
    text = verdict.write_detail(row, TOFU)["text"]
    assert text.startswith("FQ rose by 1.0000, from -16.8000 to -15.8000 (by seed +1.00, +1.00,")
    assert text.endswith("over the n\u00a0=\u00a05 seeds in common of 6 plain, 5 w/ GRU.")
    trials.loc[trials["rectifier.name"] == "gru", "seed"] += 100
    tests = significance.tests(trials, chosen, TOFU)
    assert tests["n"].tolist() == [0, 0]
    assert tests["none"].tolist() == [-14.5, 0.85]
    row = significance.compare(chosen, tests).to_dict("records")[0]
    assert (
        "no seed in common, so means of all: n\u00a0=\u00a06 plain, 5 w/ GRU" in verdict.write_detail(row, TOFU)["text"]
    )


def test_a_change_that_seeds_disagree_on_does_not_count(tmp_path: Path) -> None:
    trials, tests = sweep_of(tmp_path, [-9.0, -9.0, -9.0], [-1.0, -2.0, -9.5])
    chosen = selection.choose(trials, runs.references("tiny", tmp_path))
    row = significance.compare(chosen, tests).to_dict("records")[0]
    assert answer.change_signs(row, TOFU) == (0, 1)
    for gains, sign in (([0.0, 0.3], 0), ([], 0), ([0.1, 0.3], 1), ([-0.1, -0.3], -1)):
        changed = dict(row)
        changed |= {"forget_quality_gains": gains, "forget_quality_difference": sum(gains)}
        assert answer.change_signs(changed, TOFU) == (sign, 1)
    told = verdict.write_verdict(
        trials, runs.references("tiny", tmp_path), pd.DataFrame([row]), chosen, Selection(), tests
    )
    assert told[0].startswith("GRU improved the trade-off (a goal better, none worse) in 1 of 1 comparisons")
    assert "GRU improved MU and did not clearly change FQ for 1 of 1 methods (GA)." in " ".join(told)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm(values: list[float]) -> None:
    """As Holm states it: the k-th smallest p is held against level / (m - k + 1), up to the first that fails."""
    adjusted = significance.holm(pd.Series([*values, float("nan")]))
    assert math.isnan(adjusted.iloc[-1])
    for level in (0.01, 0.05, 0.3):
        rejected = 0
        for place, p in enumerate(sorted(values)):
            if p * (len(values) - place) >= level:
                break
            rejected += 1
        assert (adjusted.dropna() < level).sum() == rejected


def test_the_verdict_at_equal_utility(tmp_path: Path) -> None:
    """On the made-up lines of `calibrated` GA gains 5, 5 and 5 times w; NPO's GRU misses a target."""
    ids = [write_trial(tmp_path, "ga0", fq=-14.0, mu=0.1, calibration=calibrated(-14.0, 0.1))]
    ids.append(write_trial(tmp_path, "ga1", rectifier=GRU, fq=-9.0, mu=0.1, calibration=calibrated(-9.0, 0.1)))
    ids.append(write_trial(tmp_path, "npo0", "npo", fq=-9.0, mu=0.1, calibration=calibrated(-9.0, 0.1)))
    missed = calibrated(-9.5, 0.1, missed=(0.95,))
    ids.append(write_trial(tmp_path, "npo1", "npo", GRU, fq=-9.5, mu=0.1, calibration=missed))
    write_sweep(tmp_path, ids, splits=("forget05",))
    trials = runs.load("tiny", tmp_path)
    weights = {share: ((1 - share) * 0.9 / 0.8) ** 0.5 for share in sweep_store.SHARES}
    told = answer.compare_at_equal_utility(trials, runs.references("tiny", tmp_path), TOFU, Selection())
    assert told == [
        "At equal utility on forget05 (5%) (UWC: mixed back to 85%, 90% and 95% of the original model's MU) FQ is "
        f"higher with GRU in 3 of 5 pairs, lower in 2 (GA {5 * weights[0.95]:+.2f} to {5 * weights[0.85]:+.2f}; "
        f"NPO {-0.5 * weights[0.85]:+.2f} to {-0.5 * weights[0.9]:+.2f}) (n = 1). 1 of 6 pairs are left out: a side "
        "missed its target, needed no mixing, or has no FQ."
    ]
    page = (report.build("tiny", tmp_path) / "index.html").read_text()
    assert page.index("At equal utility on forget05 (5%)") < page.index("Main table")


def test_settings_that_the_original_beats_are_named() -> None:
    """The largest gain of all may lie between two models that are worse than no unlearning."""
    original = pd.DataFrame([{"split": "forget10", "role": "original", "forget_quality": -33.23, "model_utility": 0.9}])
    rows = [("simnpo_gd", "none", -51.16, 0.029), ("simnpo_gd", "gru", -39.0, 0.224), ("npo", "gru", -10.6, 0.47)]
    columns = ["method", "rectifier.name", "forget_quality", "model_utility"]
    chosen = pd.DataFrame(rows, columns=columns).assign(**{"benchmark.split": "forget10"})
    assert answer.list_beaten(chosen, original, TOFU) == (
        "No better than the original model on any goal, so that a change among them is no useful unlearning: "
        "1 of 2 with GRU (SimNPO+GD on forget10) and 1 of 1 without (SimNPO+GD on forget10)."
    )
    assert answer.list_beaten(chosen.iloc[2:], original, TOFU) == ""
