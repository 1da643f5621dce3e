"""Which rectifier helps: tests, intervals and effects over seeds, held beside formulas written out."""

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis.stats import rectifier_comparison as comparison
from analysis.stats.rectifier_comparison import compare_rectifiers
from analysis.stats.significance import bootstrap_paired_differences
from tests.support.ruled_sweeps import NAMES, write_arena

SHIFTS = {"none": 0.0, "gru": 3.0, "sago": -2.0, "blur": 0.05}
numbers = st.floats(-50, 50).map(lambda value: round(value, 3))


def noisy(method: str, name: str, seed: int, lr: float) -> tuple[float, float]:
    """Return an FQ that differs by seed and, less so, by rectifier within a seed; MU 0.85."""
    dice = np.random.default_rng([seed, *name.encode()])
    return -12 + SHIFTS.get(name, 0.0) + np.random.default_rng(seed).normal(0, 3) + dice.normal(0, 0.3), 0.85


def flip_signs(gains: list[float]) -> float:
    """Return the share of all sign patterns whose mean is at least as far from 0."""
    means = [np.mean(np.multiply(signs, gains)) for signs in itertools.product((1, -1), repeat=len(gains))]
    return float(np.mean([abs(mean) >= abs(np.mean(gains)) * (1 - 1e-9) for mean in means]))


@settings(max_examples=40)
@example([-12.277, -12.277, 0.0, -12.277, 0.0])  # the mean of equal numbers is rounded
@given(st.lists(numbers, min_size=5, max_size=9).filter(lambda values: np.ptp(values) > 1e-3))
def test_p_counts_sign_patterns(gains: list[float]) -> None:
    found = bootstrap_paired_differences(tuple(gains))
    assert found["p"] == pytest.approx(flip_signs(gains))
    assert found["p"] >= 2 / 2 ** len(gains)
    assert found["effect"] == pytest.approx(np.mean(gains) / np.std(gains, ddof=1))
    rounding = 1e-12 * max(map(abs, gains))
    assert min(gains) - rounding <= found["low"] <= found["high"] <= max(gains) + rounding
    turned = bootstrap_paired_differences(tuple(-gain for gain in gains))
    assert (turned["p"], turned["effect"]) == pytest.approx((found["p"], -found["effect"]))


def test_few_seeds_and_equal_gains() -> None:
    assert all(math.isnan(value) for value in bootstrap_paired_differences((1.0, 2.0, 3.0, 4.0)).values())
    found = bootstrap_paired_differences((0.5,) * 6)
    assert (found["low"], found["high"], found["p"]) == (0.5, 0.5, 2 / 64)
    assert math.isnan(found["effect"])
    assert bootstrap_paired_differences((0.0,) * 6)["p"] == 1


def test_differences_of_a_sweep(tmp_path: Path) -> None:
    found = compare_rectifiers(write_arena(tmp_path, noisy))
    rows = found.differences.set_index(["rectifier", "metric"])
    quality = rows.xs("forget_quality", level="metric")
    for name in NAMES[1:]:
        gains = [noisy("npo", name, seed, 0)[0] - noisy("npo", "none", seed, 0)[0] for seed in range(10)]
        row = quality.loc[name]
        assert row["gains"] == pytest.approx(gains)
        assert (row["n"], row["difference"], row["p"]) == pytest.approx((10, np.mean(gains), flip_signs(gains)))
    assert quality["sign"].to_dict() == {"gru": 1, "sago": -1, "blur": 0}
    ordered = pd.Series(quality["p"]).sort_values()
    raised = np.maximum.accumulate([p * (3 - place) for place, p in enumerate(ordered)])
    assert quality["adjusted"].loc[ordered.index].tolist() == pytest.approx(np.minimum(raised, 1).tolist())
    utility = rows.xs("model_utility", level="metric")
    assert set(utility["p"]) == {1}, "MU is the same everywhere"


def test_differences_are_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    """GRU lacks two, none one, and BLUR most: a trial that diverged after some steps says 0 s, which is no time."""
    gone = {("gru", 3), ("gru", 4), ("none", 9), *(("blur", seed) for seed in range(6))}
    found = compare_rectifiers(write_arena(tmp_path, lambda *at: None if at[1:3] in gone else noisy(*at)))
    assert found.differences.set_index(["metric", "rectifier"]).loc["forget_quality", "n"].to_dict() == {
        "gru": 7,
        "sago": 9,
        "blur": 3,
    }
    assert found.step_seconds["slower"].tolist() == [1, 1, 1, 1]
    assert [goal.metric for goal in found.deciding_goals] == ["forget_quality", "model_utility"]


def test_equal_utility_and_extraction_strength_rank(tmp_path: Path) -> None:
    """A model that keeps more than the target by itself stays as it is, and is counted."""

    def value(method: str, name: str, seed: int, lr: float) -> tuple[float, float]:
        return -10 + SHIFTS[name] + 0.1 * seed, 0.88 if name == "gru" else 0.5

    found = compare_rectifiers(write_arena(tmp_path, value, mixed=True, extraction=True))
    assert [goal.short for goal in found.deciding_goals] == [*(f"FQ at {share}% MU" for share in (85, 90, 95)), "ES"]
    rows = found.differences.set_index(["metric", "rectifier"])
    mixed = rows.loc["forget_quality_at_0.9"]
    weight = math.sqrt(0.1 * 0.9 / (0.9 - 0.5))  # of calibrated's parabola of MU
    gains = [0.05 * weight] * 10
    assert mixed.loc["blur", "gains"] == pytest.approx(gains)
    assert rows.loc[("forget_quality", "blur"), "below"] == 10
    assert mixed.loc["blur", "below"] == 0
    strength = rows.loc["forget_extraction_strength"]
    assert np.sign(strength["difference"]).to_dict() == {"gru": -1, "sago": 1, "blur": -1}
    assert strength.loc["gru", "sign"] == 1, "less can be extracted"


SEARCHED = {1e-3: [0, 1, 2, *range(10, 20)], 2e-3: [0, 1, 2, *range(10, 20)], 4e-3: [0, 1, 2]}


def tuned(method: str, name: str, seed: int, lr: float) -> tuple[float, float]:
    """Return values that are best at 1e-3 without a rectifier and at 2e-3 with GRU; luck at seeds 0 to 2 at 4e-3."""
    best = 2e-3 if name == "gru" else 1e-3
    luck = -20.0 if lr == 4e-3 else 0.0
    return -40.0 - (5.0 if lr != best else 0.0) + luck + 0.01 * seed + (20 if seed > 2 else 0), 0.85


def test_settings_are_chosen_on_their_own_seeds_and_reported_on_others(tmp_path: Path) -> None:
    """At seeds from 10 on all FQs are 20 higher: what is chosen stays, what is reported is of these alone."""
    found = compare_rectifiers(
        write_arena(
            tmp_path, tuned, names=("none", "gru", "sago"), seeds=SEARCHED, selection={"seeds": [0, 1, 2]}, mixed=True
        )
    )
    mixtures = found.results.tidy_frame.dropna(subset=["target"])
    assert set(mixtures.loc[mixtures["chosen"] & (mixtures["metric"] == "weight"), "n"]) == {10}
    assert set(found.values["seed"]) == set(range(10, 20))
    rows = found.differences.set_index(["metric", "rectifier"])
    assert rows.loc[("forget_quality", "gru"), "difference"] == pytest.approx(0)
    chosen = found.results.chosen.set_index("rectifier.name")
    assert chosen.loc["none", "forget_quality"] == pytest.approx(-20 + 0.01 * 14.5)
    assert chosen.loc["none", "choice.removal"] == pytest.approx(-40 + 0.01)
    assert set(chosen["settings"]) == {3}


def test_an_objective_with_a_retain_term_is_one_more_rival(tmp_path: Path) -> None:
    """GD beside GA with rules that may put the retain gradient back; not where GRU alone is compared."""
    methods = {"ga": NAMES, "gd": ("none",), "npo": ("none", "gru"), "npo_gd": ("none",)}
    found = compare_rectifiers(write_arena(tmp_path, noisy, methods=methods)).values
    names = {method: set(rows["rectifier"]) for method, rows in found.groupby("method")}
    assert names == {"ga": {*NAMES, comparison.RETAIN_TERM_RIVAL_NAME}, "npo": {"none", "gru"}}
