"""What a report says of chance: paired tests over seeds, changes that count, equal utility."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import runs
from analysis.report import verdict
from analysis.stats import setting_importance, significance
from analysis.stats.rectifier_comparison import compare_rectifiers
from analysis.stats.sweep_results import SweepResults
from tests.support.sweep_store import GRU, NONE, make_sweep, read, write_sweep, write_trial
from trainables import benchmarks
from trainables.config.settings import Benchmark
from trainables.storage.atomic_files import write_parquet_rows
from trainables.storage.file_names import ROWS


def sweep_of(store: Path, plain: list[float], gru: list[float]) -> SweepResults:
    """Return the results of GA at these FQs, a seed each, MU 0.85 without and 0.86 with GRU."""
    trials = [
        {"rectifier": rectifier, "fq": fq, "mu": mu, "seed": seed}
        for rectifier, values, mu in ((NONE, plain, 0.85), (GRU, gru, 0.86))
        for seed, fq in enumerate(values)
    ]
    return make_sweep(store, *trials, splits=("forget05",))


def test_five_seeds_are_tested_in_pairs(tmp_path: Path) -> None:
    """By the formula of the paired t: 4 degrees of freedom, 2.132 at p = 0.1, 2.776 at 0.05, 4.604 at 0.01."""
    gains = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    plain = [-9.0, -30.0, -14.0, -11.0, -20.0, -3.0]  # the sixth seed has no pair
    results = sweep_of(tmp_path, plain, (np.array(plain[:5]) + gains).tolist())
    quality, utility = compare_rectifiers(results).differences.to_dict("records")
    t = 3.0 / (np.std(gains, ddof=1) / math.sqrt(5))
    assert (quality["n"], quality["difference"]) == (5, pytest.approx(3.0))
    assert (quality["none"], quality["value"]) == (pytest.approx(-16.8), pytest.approx(-13.8))  # of the five in common
    half = 2.776445 * np.std(gains, ddof=1) / math.sqrt(5)
    assert (quality["low"], quality["high"]) == pytest.approx((3.0 - half, 3.0 + half))
    assert 2.132 < t < 4.604
    assert 0.01 < quality["p"] < 0.1
    assert quality["adjusted"] == quality["p"]  # MU's differences are all equal: no test
    assert np.isnan([utility["p"], utility["low"], utility["high"]]).all()
    row = verdict.tabulate_rectifier_differences(compare_rectifiers(results)).iloc[0]
    assert row.tolist() == ["GA w/ GRU", "FQ ↑", "-16.8000", "-13.8000", "+3.00", "+1.04 to +4.96", "5", "better"]


@pytest.mark.parametrize(
    ("plain", "gru", "signs"),
    [
        ([-20.0] * 6, [-15.0, -15.1, -14.9, -15.0, -15.2, -20.1], [1, 1]),  # an interval beyond 0, though one fell
        ([-9.0] * 3, [-1.0, -2.0, -9.5], [0, 1]),  # below five seeds all must agree
        ([-9.0] * 3, [-9.0, -8.7, -8.7], [0, 1]),
        ([-9.0] * 3, [-8.9, -8.7, -8.7], [1, 1]),
        ([-9.0] * 3, [-9.1, -9.3, -9.3], [-1, 1]),
        ([-9.0] * 3, [-8.9951] * 3, [0, 1]),  # less than 0.01
        ([-9.0] * 2, [-1.0] * 2, [math.nan, math.nan]),  # two seeds say nothing clear
    ],
)
def test_the_sign_of_a_change(tmp_path: Path, plain: list[float], gru: list[float], signs: list[int]) -> None:
    found = compare_rectifiers(sweep_of(tmp_path, plain, gru)).differences["sign"].tolist()
    assert found == pytest.approx(signs, nan_ok=True)


@pytest.mark.parametrize(("rows", "sign"), [(1, 0), (1.5, 1), (-2, -1)])
def test_forget_quality_counts_beyond_one_step_of_its_lattice(tmp_path: Path, rows: float, sign: int) -> None:
    """Of 200 rows D moves by 1/200: seeds that all move by one step are as near as two models can be apart."""
    trials = []
    for seed in (0, 1, 2):
        for rectifier, fq, down in ((NONE, -9.0, 0.0), (GRU, -9.0 + rows, rows / 200)):
            ks = {"forget_quality": fq, "forget_quality_ks": 0.3 + 0.01 * seed - down, "forget_rows": 200}
            trials.append({"rectifier": rectifier, "metrics": ks | {"model_utility": 0.85}, "seed": seed})
    results = make_sweep(tmp_path, *trials, splits=("forget05",))
    quality = compare_rectifiers(results).differences.to_dict("records")[0]
    assert quality["ks_steps"] == pytest.approx(abs(rows))
    assert quality["sign"] == sign


@pytest.mark.parametrize(("gain", "sign"), [(0.0, 0), (0.02, 1)])
def test_utility_counts_beyond_what_its_rows_leave_open(tmp_path: Path, gain: float, sign: int) -> None:
    """All rows of the seeds gain alike, or by chance."""
    dice = np.random.default_rng(3)
    tasks = {"retain": 60, "real_authors": 40, "world_facts": 40}
    ids = []
    for seed in (0, 1, 2):
        plain = [
            {"task": task, "index": index, "answer_tokens": 1, "answer_loss": dice.uniform(0.2, 1.0)}
            | {"paraphrase_tokens": 1, "paraphrase_loss": 0.5, "perturbed_tokens": [1], "perturbed_loss": [1.0]}
            | {"rougeL_recall": 0.5}
            for task, count in tasks.items()
            for index in range(count)
        ]
        noisy = [row | {"answer_loss": row["answer_loss"] + dice.normal(0, 0.3)} for row in plain]
        gru = [row | {"answer_loss": row["answer_loss"] - gain} for row in (plain if gain else noisy)]
        for name, rectifier, records in (("plain", NONE, plain), ("gru", GRU, gru)):
            parts = benchmarks.get_benchmark("tofu").utility_by_row(Benchmark(), records)
            mu = significance.compute_utility_from_rows(parts)
            ids.append(write_trial(tmp_path, f"{name}{seed}", rectifier=rectifier, fq=-9.0, mu=mu, seed=seed))
            write_parquet_rows(tmp_path / "trials" / ids[-1] / ROWS, records)
    write_sweep(tmp_path, ids, splits=("forget05",))
    results = read(tmp_path)
    utility = compare_rectifiers(results).differences.to_dict("records")[1]
    assert utility["n"] == 3
    assert (utility["rows_low"] <= 0 <= utility["rows_high"]) == (sign == 0)
    assert utility["rows_low"] - 1e-4 <= utility["difference"] <= utility["rows_high"] + 1e-4  # which is rounded
    assert utility["sign"] == sign


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm(values: list[float]) -> None:
    """As Holm states it: the k-th smallest p is held against level / (m - k + 1), up to the first that fails."""
    adjusted = significance.adjust_p_values_holm(pd.Series([*values, float("nan")]))
    assert math.isnan(adjusted.iloc[-1])
    for level in (0.01, 0.05, 0.3):
        rejected = 0
        for place, p in enumerate(sorted(values)):
            if p * (len(values) - place) >= level:
                break
            rejected += 1
        assert (adjusted.dropna() < level).sum() == rejected


def make_runs(store: Path, count: int, failed: int = 0) -> pd.DataFrame:
    """NPO with GRU over rates, gammas and taus: the rate decides FQ, best at 1e-4, and gamma alone MU."""
    random = np.random.default_rng(0)
    for place in range(count):
        lr, gamma = float(10 ** random.uniform(-6, -3)), float(random.uniform(0.05, 0.95))
        rectifier = GRU | {"gamma": gamma, "tau": (None, 1.0)[place % 2]}
        given = {"lr": lr, "fq": -10 * abs(math.log10(lr) + 4), "mu": 1 - gamma}
        status = "failed" if place < failed else "finished"
        write_trial(store, f"{place:012x}", "npo", rectifier, status=status, **given)
    write_sweep(store, [f"{place:012x}" for place in range(count)], splits=())
    return runs.load("tiny", store)


def test_the_setting_that_decides_a_goal_has_most_of_its_importance(tmp_path: Path) -> None:
    found = setting_importance.measure_setting_importance(make_runs(tmp_path, 30))
    for metric, decides in (("forget_quality", "training.lr"), ("model_utility", "rectifier.gamma")):
        rows = found.loc[found["metric"] == metric]
        shares = dict(zip(rows["setting"], rows["importance"], strict=True))
        assert shares[decides] > 0.6
        assert sum(shares.values()) == pytest.approx(1)
        assert set(shares) == {"training.lr", "rectifier.gamma", "rectifier.tau"}
    assert set(found["settings"]) == {30}


@pytest.mark.parametrize(("count", "failed", "settings"), [(9, 0, set()), (14, 5, set()), (15, 5, {10}), (3, 3, set())])
def test_few_settings_and_failures_say_nothing(tmp_path: Path, count: int, failed: int, settings: set[int]) -> None:
    assert (
        set(setting_importance.measure_setting_importance(make_runs(tmp_path, count, failed))["settings"]) == settings
    )
