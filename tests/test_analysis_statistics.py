"""What a report says of chance: bootstrap intervals, paired tests over seeds, hypervolume, equal utility."""

import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sweep_store
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_store import GRU, NONE, ORIGINAL_FQ, calibrated, write_sweep, write_trial

from analysis import answer, figures, hypervolume, intervals, report, runs, seeds, selection, significance, verdict
from analysis.goals import TOFU
from trainables import benchmarks
from trainables.config import Benchmark, Selection
from trainables.storage import ROWS, Storage, write_rows

steps = st.integers(0, 6)
points = st.lists(st.tuples(steps, steps), max_size=12)


@settings(deadline=None)
@given(points, st.tuples(st.integers(-2, 3), st.integers(-2, 3)))
def test_hypervolume_counts_the_squares_that_a_point_beats(
    found: list[tuple[int, int]], corner: tuple[int, int]
) -> None:
    """On a lattice the area is the number of unit squares between the corner and some point."""
    squares = itertools.product(range(corner[0], 6), range(corner[1], 6))
    covered = sum(any(x + 1 <= a and y + 1 <= b for a, b in found) for x, y in squares)
    assert hypervolume.hypervolume(found, corner) == covered


@settings(deadline=None)
@given(points, st.tuples(steps, steps))
def test_hypervolume_never_shrinks_and_ignores_what_is_beaten(
    found: list[tuple[int, int]], more: tuple[int, int]
) -> None:
    before, after = (hypervolume.hypervolume(values, (0, 0)) for values in (found, [*found, more]))
    assert after >= before
    if any(a >= more[0] and b >= more[1] for a, b in found):
        assert after == before


def rows(dice: random.Random, counts: dict[str, int]) -> list[dict[str, Any]]:
    """Return an evaluation's rows as the benchmark writes them, with numbers of tokens that differ."""
    records = []
    for task, count in counts.items():
        for index in range(count):
            tokens = [dice.randint(5, 40) for _ in range(7)]
            losses = [n * dice.uniform(0.1, 2.0) for n in tokens]
            records.append(
                {"task": task, "index": index, "question": "q", "answer": "a", "generation": "g"}
                | {"answer_loss": losses[0], "answer_tokens": tokens[0]}
                | {"paraphrase_loss": losses[1] / 2, "paraphrase_tokens": tokens[1]}
                | {"perturbed_loss": losses[2:], "perturbed_tokens": tokens[2:]}
                | {"rouge1_recall": dice.random(), "rougeL_recall": dice.random()}
            )
    return records


COUNTS = {"forget": 12, "retain": 30, "real_authors": 20, "world_facts": 25}


@pytest.mark.parametrize("dialect", ["paper", "open-unlearning"])
def test_parts_give_the_utility_that_the_benchmark_does(dialect: Any) -> None:
    records, tofu = rows(random.Random(1), COUNTS), benchmarks.find("tofu")
    parts = tofu.utility_parts(Benchmark(dialect=dialect), records)
    assert [part.shape for part in parts] == [(30, 3), (20, 3), (25, 3)]
    from trainables.benchmarks.tofu import aggregate

    assert intervals.utility(parts) == pytest.approx(aggregate(records, dialect)["model_utility"], rel=1e-12)


def test_parts_of_the_other_benchmarks_give_their_utility() -> None:
    told = {"task": "knowmem_r", "rougeL_f1": 0.25}, {"task": "knowmem_f", "rougeL_f1": 0.9}
    muse = benchmarks.find("muse").utility_parts(Benchmark(name="muse", dialect="paper"), list(told))
    assert intervals.utility(muse) == 25.0
    asked = [{"task": f"mmlu_{n}", "correct": n > 1} for n in range(4)] + [{"task": "wmdp_bio", "correct": True}]
    assert intervals.utility(benchmarks.find("wmdp").utility_parts(Benchmark(name="wmdp"), asked)) == 0.5
    names = benchmarks.find("own").UTILITY_COLUMNS
    own = [dict(zip(names, values, strict=True)) | {"task": "retain"} for values in ((1, 1, 1, 0.5), (0, 1, 1, 0.5))]
    parts = benchmarks.find("own").utility_parts(Benchmark(name="own"), own)
    assert intervals.utility(parts) == pytest.approx(4 / (1 / 0.5 + 1 + 1 + 1 / 0.5))
    assert benchmarks.find("own").utility_parts(Benchmark(name="own", tasks=("mmlu",)), own) == []


def test_the_interval_is_that_of_a_bootstrap_by_hand() -> None:
    """Another generator, row by row: the bounds agree within what 1,000 resamples leave open."""
    dice = np.random.default_rng(5)
    parts = [dice.uniform(0.2, 1.0, (40, 3)), dice.uniform(0.5, 1.0, (25, 3))]
    drawn = []
    for _ in range(4000):
        chosen = [part[dice.integers(0, len(part), len(part))] for part in parts]
        means = [float(np.mean(part[:, column])) for part in chosen for column in range(3)]
        drawn.append(len(means) / sum(1 / mean for mean in means))
    low, high = intervals.interval(parts)
    spread = float(np.std(drawn))
    assert low == pytest.approx(np.quantile(drawn, 0.025), abs=0.25 * spread)
    assert high == pytest.approx(np.quantile(drawn, 0.975), abs=0.25 * spread)
    assert low < intervals.utility(parts) < high


def test_the_interval_of_one_mean_is_near_the_normal_one() -> None:
    values = np.random.default_rng(0).normal(10.0, 1.0, (400, 1))
    low, high = intervals.interval([values])
    error = values.std() / math.sqrt(400)
    assert (low, high) == pytest.approx((values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=0.25 * error)


def test_a_collapsed_utility_has_an_interval_of_zeros() -> None:
    assert intervals.interval([np.zeros((10, 3)), np.ones((5, 3))]) == (0.0, 0.0)


def with_rows(store: Path, trial: str, halves: bool = False, **given: Any) -> list[dict[str, Any]]:
    """Write a trial whose metrics are those of its evaluation's rows, FQ apart."""
    from trainables.benchmarks.tofu import aggregate

    records = rows(random.Random(trial), COUNTS)
    found = [aggregate(part, "paper") for part in (records, *(benchmarks.every_other(records, n) for n in (0, 1)))]
    whole, *half = [one | {"forget_quality": -3.0, "forget_quality_ks": 0.25} for one in found]
    write_trial(store, trial, metrics=whole, halves=half if halves else None, **given)
    write_rows(store / "trials" / trial / ROWS, records)
    return records


def test_every_seed_has_its_distance_and_its_interval(tmp_path: Path) -> None:
    for seed in (0, 1):
        with_rows(tmp_path, f"plain{seed}", seed=seed)
    records = with_rows(tmp_path, "gru", rectifier=GRU)
    write_trial(tmp_path, "bare", "gd", fq=-4.0, mu=0.5)
    with_rows(tmp_path, "other", method="npo")
    write_rows(tmp_path / "trials/other" / ROWS, records)  # of another evaluation
    write_sweep(tmp_path, ["plain1", "plain0", "gru", "bare", "other"], splits=("forget05",))
    trials, models = runs.load("tiny", tmp_path), runs.references("tiny", tmp_path)
    frame = seeds.table(trials, models, Storage(tmp_path)).set_index("id")
    assert frame.index.tolist() == ["plain0", "plain1", "gru", "bare", "other"]
    assert frame.loc["gru", ["forget_quality_ks", "forget_rows", "seed"]].tolist() == [0.25, 12, 0]
    parts = benchmarks.find("tofu").utility_parts(Benchmark(), records)
    assert frame.loc["gru", ["low", "high"]].tolist() == list(intervals.interval(parts))
    assert np.isnan(frame.loc[["bare", "other"], ["low", "high"]].to_numpy()).all()
    assert all(frame["low"].dropna() < frame["model_utility"][:3])
    text = seeds.caption(frame, trials)
    assert "No interval, for want of rows that give MU: 2 of 5 seeds." in text
    shown = seeds.printed(frame.reset_index(), trials).iloc[2]
    assert (shown["KS D"], shown["n"], shown["Method"]) == ("0.250", "12", "GA w/ GRU")


def test_intervals_are_of_the_rows_that_are_reported(tmp_path: Path) -> None:
    records = with_rows(tmp_path, "gru", halves=True, rectifier=GRU)
    write_sweep(tmp_path, ["gru"], selection={"halves": True})
    trials = runs.load("tiny", tmp_path)
    frame = seeds.table(trials, models(tmp_path), Storage(tmp_path), Selection(halves=True))
    parts = benchmarks.find("tofu").utility_parts(Benchmark(), benchmarks.every_other(records, 1))
    assert frame.loc[0, ["low", "high"]].tolist() == list(intervals.interval(parts))
    assert frame.loc[0, "model_utility"] == trials.loc[0, "model_utility"] == pytest.approx(intervals.utility(parts))


def models(store: Path) -> pd.DataFrame:
    return runs.references("tiny", store)


def sweep_of(store: Path, plain: list[float], gru: list[float]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs and tests of GA at these FQs (a seed each, from 0), MU 0.85 without and 0.86 with GRU."""
    ids = []
    for name, rectifier, values, mu in (("plain", NONE, plain, 0.85), ("gru", GRU, gru, 0.86)):
        for seed, fq in enumerate(values):
            ids.append(write_trial(store, f"{name}{seed}", rectifier=rectifier, fq=fq, mu=mu, seed=seed))
    write_sweep(store, ids, splits=("forget05",))
    trials = runs.load("tiny", store)
    return trials, significance.tests(trials, selection.choose(trials, models(store)), TOFU)


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
    text = answer.significant(tests, TOFU)
    assert text == (
        "1 of 1 differences are significant at 5% (two-sided paired t tests over n = 5 seeds, p adjusted by Holm for "
        "1 tests): FQ of GA on forget05 (better with GRU, p = 0.013). 1 more rest on fewer than 5 seeds, or on seeds "
        "that all differ alike: not tested."
    )


def test_from_five_seeds_on_one_that_disagrees_decides_nothing(tmp_path: Path) -> None:
    trials, tests = sweep_of(tmp_path, [-20.0] * 6, [-15.0, -15.1, -14.9, -15.0, -15.2, -20.1])
    chosen = selection.choose(trials, models(tmp_path))
    row = significance.compare(chosen, tests).to_dict("records")[0]
    assert row["forget_quality_low"] > 0 > min(row["forget_quality_gains"])
    assert answer.signs(row, TOFU) == (1, 1)


def test_four_seeds_claim_nothing(tmp_path: Path) -> None:
    trials, tests = sweep_of(tmp_path, [-10.0, -10.1, -9.9, -10.0], [-1.0, -1.1, -0.9, -1.2])
    assert all(tests["p"].isna())
    assert answer.significant(tests, TOFU) == (
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
    chosen = selection.choose(trials, models(tmp_path))
    row = significance.compare(chosen, tests).to_dict("records")[0]
    text = verdict.detail(row, TOFU)["text"]
    assert text.startswith("FQ rose by 1.0000, from -16.8000 to -15.8000 (by seed +1.00, +1.00,")
    assert text.endswith("over the n\u00a0=\u00a05 seeds in common of 6 plain, 5 w/ GRU.")
    trials.loc[trials["rectifier.name"] == "gru", "seed"] += 100
    tests = significance.tests(trials, chosen, TOFU)
    assert tests["n"].tolist() == [0, 0]
    assert tests["none"].tolist() == [-14.5, 0.85]
    row = significance.compare(chosen, tests).to_dict("records")[0]
    assert "no seed in common, so means of all: n\u00a0=\u00a06 plain, 5 w/ GRU" in verdict.detail(row, TOFU)["text"]


def test_a_change_that_seeds_disagree_on_does_not_count(tmp_path: Path) -> None:
    trials, tests = sweep_of(tmp_path, [-9.0, -9.0, -9.0], [-1.0, -2.0, -9.5])
    chosen = selection.choose(trials, models(tmp_path))
    row = significance.compare(chosen, tests).to_dict("records")[0]
    assert answer.signs(row, TOFU) == (0, 1)
    for gains, sign in (([0.0, 0.3], 0), ([], 0), ([0.1, 0.3], 1), ([-0.1, -0.3], -1)):
        changed = dict(row)
        changed |= {"forget_quality_gains": gains, "forget_quality_difference": sum(gains)}
        assert answer.signs(changed, TOFU) == (sign, 1)
    told = verdict.sentences(trials, models(tmp_path), pd.DataFrame([row]), chosen, Selection(), tests)
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


def test_areas_of_settings_with_and_without_gru(tmp_path: Path) -> None:
    """GA both ways: above (-21.4, 0) a setting without and two with GRU; GD has no GRU and does not count."""
    trials = [write_trial(tmp_path, "0" * 12, fq=-11.4, mu=0.5)]
    trials.append(write_trial(tmp_path, "1" * 12, rectifier=GRU, fq=-11.4, mu=0.4))
    trials.append(write_trial(tmp_path, "2" * 12, rectifier=GRU | {"tau": 1.0}, fq=-16.4, mu=0.8))
    trials.append(write_trial(tmp_path, "3" * 12, "gd", fq=-1.0, mu=0.9))
    write_sweep(tmp_path, trials, splits=("forget05",))
    frame = runs.load("tiny", tmp_path)
    row = hypervolume.table(frame, models(tmp_path), TOFU).to_dict("records")[0]
    assert (row["volume_none"], row["volume_gru"]) == (pytest.approx(10 * 0.5), pytest.approx(10 * 0.4 + 5 * 0.4))
    assert (row["settings_none"], row["settings_gru"], row["methods"], row["reference"]) == (1, 2, 1, -21.4)
    assert answer.areas(frame, models(tmp_path), TOFU) == [
        "On forget05 (5%), the Pareto front of all settings of the one method run both ways covers "
        "6.000 with GRU and 5.000 without it (+20%), as "
        "hypervolume in ln p × MU beyond the target model's FQ of -21.40 and MU 0: 2 settings with and 1 without "
        "it; the side with more settings has the better chance."
    ]


def test_the_front_is_of_means_and_of_nothing_that_the_original_beats(tmp_path: Path) -> None:
    """The original is at (-21.4, 0.9). One seed of GA is far beyond all else; its mean is not.

    GD gives up less utility at less FQ than the original, on no goal better; with GRU it is better on one.
    """
    trials = [
        write_trial(tmp_path, "0" * 12, fq=-1.0, mu=0.8),
        write_trial(tmp_path, "1" * 12, fq=-19.0, mu=0.2, seed=1),
    ]
    trials.append(write_trial(tmp_path, "2" * 12, rectifier=GRU, fq=-8.0, mu=0.6))
    trials.append(write_trial(tmp_path, "3" * 12, "gd", fq=-22.0, mu=0.85))
    trials.append(write_trial(tmp_path, "4" * 12, "gd", rectifier=GRU, fq=-20.0, mu=0.85))
    trials.append(write_trial(tmp_path, "5" * 12, "npo", fq=-30.0, mu=0.95))
    write_sweep(tmp_path, trials, splits=("forget05",))
    frame, references = runs.load("tiny", tmp_path), models(tmp_path)
    drawn = figures.tradeoff_points(frame, references)
    front = drawn.loc[drawn["front"]]
    found = sorted(zip(front["forget_quality"], front["model_utility"], strict=True))
    assert found == [(-30.0, 0.95), (-20.0, 0.85), (-8.0, 0.6)]
    axes = figures.tradeoff(drawn, TOFU).axes[0]
    (line,) = [line for line in axes.lines if line.get_drawstyle() == "steps-pre"]
    assert sorted(np.asarray(line.get_xdata())[1:-1].tolist()) == [-30.0, -20.0, -8.0]
    means = drawn.loc[drawn["kind"] == "setting"]
    of_all = zip(means["forget_quality"], means["model_utility"], strict=True)
    area = hypervolume.hypervolume(found, (ORIGINAL_FQ, 0.0))
    assert area == hypervolume.hypervolume(of_all, (ORIGINAL_FQ, 0.0)) == pytest.approx(13.4 * 0.6 + 1.4 * 0.25)
    table = hypervolume.table(frame.loc[frame["method"] != "npo"], references, TOFU).iloc[0]
    assert table["volume_gru"] == pytest.approx(area)  # of the front's two settings that remove more than the original
    assert table["volume_none"] == pytest.approx((ORIGINAL_FQ - -10.0) * -0.5)  # GA's mean, and nothing of GD


def test_the_line_that_a_legend_names_is_in_sight(tmp_path: Path) -> None:
    """All utilities are above the 0.81 that the rule asks for."""
    trials = [write_trial(tmp_path, "0" * 12, fq=-3.0, mu=0.88), write_trial(tmp_path, "1" * 12, "gd", fq=-9.0, mu=0.9)]
    write_sweep(tmp_path, trials, splits=("forget05",))
    drawn = figures.tradeoff_points(runs.load("tiny", tmp_path), models(tmp_path))
    axes = figures.tradeoff(drawn, TOFU).axes[0]
    (floor,) = [float(np.asarray(line.get_ydata())[0]) for line in axes.lines if line.get_linestyle() == "--"]
    assert floor == pytest.approx(0.9 * 0.9)
    assert axes.get_ylim()[0] < floor < axes.get_ylim()[1]


def test_without_the_original_model_the_front_is_of_all_settings(tmp_path: Path) -> None:
    trials = [
        write_trial(tmp_path, "0" * 12, fq=-30.0, mu=0.8),
        write_trial(tmp_path, "1" * 12, "gd", fq=-31.0, mu=0.7),
    ]
    write_sweep(tmp_path, trials, splits=())
    drawn = figures.tradeoff_points(runs.load("tiny", tmp_path), models(tmp_path))
    assert drawn.loc[drawn["front"], "forget_quality"].tolist() == [-30.0]


def test_without_the_target_model_the_area_is_left_out_in_words(tmp_path: Path) -> None:
    write_sweep(tmp_path, [write_trial(tmp_path, "0" * 12, rectifier=GRU, fq=-4.0, mu=0.5)], splits=())
    page = (report.build("tiny", tmp_path) / "index.html").read_text()
    assert "Left out: no split has a method with FQ and MU both with and without GRU, and the target model" in page


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
    told = answer.equal_utility(trials, models(tmp_path), TOFU, Selection())
    assert told == [
        "At equal utility on forget05 (5%) (UWC: mixed back to 85%, 90% and 95% of the original model's MU) FQ is "
        f"higher with GRU in 3 of 5 pairs, lower in 2 (GA {5 * weights[0.95]:+.2f} to {5 * weights[0.85]:+.2f}; "
        f"NPO {-0.5 * weights[0.85]:+.2f} to {-0.5 * weights[0.9]:+.2f}) (n = 1). 1 of 6 pairs are left out: a side "
        "missed its target, needed no mixing, or has no FQ."
    ]
    page = (report.build("tiny", tmp_path) / "index.html").read_text()
    assert page.index("At equal utility on forget05 (5%)") < page.index("Main table")


def test_failures_are_listed_up_to_a_number(tmp_path: Path) -> None:
    failed = {"status": "failed", "error": {"kind": "failed", "message": "no room", "step": None}}
    ids = [f"{place:012x}" for place in range(80)]
    for trial in ids[60:]:
        write_trial(tmp_path, trial, **failed, seed=int(trial, 16))
    write_sweep(tmp_path, ids, splits=())
    folder = report.build("tiny", tmp_path)
    page = (folder / "index.html").read_text()
    assert page.count("no result.json") == 30  # those with a cause come first
    assert page.count("no room") == 20
    assert "and 30 more: 30 missing" in page
    assert len(pd.read_csv(folder / "tables/failures.csv")) == 80


def test_settings_that_the_original_beats_are_named() -> None:
    """The largest gain of all may lie between two models that are worse than no unlearning."""
    original = pd.DataFrame([{"split": "forget10", "role": "original", "forget_quality": -33.23, "model_utility": 0.9}])
    rows = [("simnpo_gd", "none", -51.16, 0.029), ("simnpo_gd", "gru", -39.0, 0.224), ("npo", "gru", -10.6, 0.47)]
    columns = ["method", "rectifier.name", "forget_quality", "model_utility"]
    chosen = pd.DataFrame(rows, columns=columns).assign(**{"benchmark.split": "forget10"})
    assert answer.beaten(chosen, original, TOFU) == (
        "No better than the original model on any goal, so that a change among them is no useful unlearning: "
        "1 of 2 with GRU (SimNPO+GD on forget10) and 1 of 1 without (SimNPO+GD on forget10)."
    )
    assert answer.beaten(chosen.iloc[2:], original, TOFU) == ""
