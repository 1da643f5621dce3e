"""Whether seeds tell two sides apart: differences, intervals, tests and ranks; and what GRU changes of a method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.goal_columns import Goals
from analysis.load.trials import evaluated
from analysis.number_format import DECIMALS
from analysis.stats.row_bootstrap import Array, interval
from trainables.benchmarks import Goal

LEAST, LEVEL = 5, 0.05
"""Seeds below which nothing is tested and no interval is given; the error rate of all tests of a report together."""
RESAMPLES, FLIPS, SEED = 2000, 2**14, 0
"""Bootstrap samples; sign flips, all 2^n up to 14 seeds, else so many at random; the seed of both."""
SIDES = ("none", "gru")
KS = ["forget_quality_ks", "forget_rows"]
"""D of the KS test behind a forget quality, and n, the rows of each of its two samples: D is a multiple of 1/n."""
COLUMNS = ["split", "method", "metric", "n", "none", "gru", "difference", "low", "high", "p", "gains"]
COLUMNS += ["ks_steps", "rows_low", "rows_high", "sign"]


def tests(runs: pd.DataFrame, pairs: pd.DataFrame, goals: Goals, resampled: Mapping[str, Array]) -> pd.DataFrame:
    """Return one row for each split, method and goal of `Results.pairs`.

    n, none, gru, difference, gains, ks_steps, rows_low, rows_high: of `compare_seeds`, as printed; without a seed in
    common (n = 0) the means are over all seeds of each side. low, high: the 95 % interval of the difference, p: of the
    two-sided paired t test, both NaN below `LEAST` seeds or where all differences are equal. adjusted: p by Holm over
    all tests of the report. sign: 1 better with GRU, -1 worse, 0 no clear change, NaN without two seeds in common.
    """
    measured = runs.loc[evaluated(runs)].drop_duplicates(["configuration", "seed"])
    seeds = {key: group.set_index("seed") for key, group in measured.groupby("configuration")}
    rows = []
    for _, pair in pairs.groupby(["benchmark.split", "method"], sort=False):
        split, method = pair.iloc[0][["benchmark.split", "method"]]
        sides = pair.set_index("rectifier.name")["configuration"]
        plain, gru = (seeds[sides[side]] for side in SIDES)
        for goal in goals.compared:
            row = {"split": split, "method": method, **compare_seeds(plain, gru, goal, goals.retention, resampled)}
            if not row["n"]:
                row |= {"none": plain[goal.metric].mean(), "gru": gru[goal.metric].mean()}
            row |= {side: round(float(row[side]), DECIMALS) for side in SIDES}
            row["difference"] = round(row["gru"] - row["none"], DECIMALS)
            row |= _test_by_t(row["gains"])
            rows.append(row | {"gains": [round(gain, DECIMALS) for gain in row["gains"]]})
            rows[-1]["sign"] = _find_direction(rows[-1], goal)
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.assign(adjusted=holm(pd.Series(frame["p"], dtype=float)))


def compare_seeds(
    plain: pd.DataFrame, other: pd.DataFrame, goal: Goal, kept: Goal, resampled: Mapping[str, Array]
) -> dict[str, Any]:
    """Return what a goal is without (`none`) and with a rectifier (`gru`), means over the `n` seeds that both have.

    `plain`, `other`: trials by seed. difference: gru - none, gains: the list by seed. ks_steps: of FQ, by how many
    steps of 1/n the mean KS distance changes. rows_low, rows_high: of the goal of retention (`kept`), the 95 % interval
    of the difference over the evaluation rows, where `resampled` has all these trials.
    """
    seeds = plain[goal.metric].dropna().index.intersection(other[goal.metric].dropna().index).sort_values()
    before, after = plain.loc[seeds], other.loc[seeds]
    gains = (after[goal.metric] - before[goal.metric]).astype(float)
    row: dict[str, Any] = {"metric": goal.metric, "n": len(seeds), "gains": gains.tolist()}
    row |= {"none": before[goal.metric].mean(), "gru": after[goal.metric].mean(), "difference": gains.mean()}
    if goal.metric == "forget_quality":
        row["ks_steps"] = count_ks_steps(before, after)
    if goal == kept:
        row |= bound_by_rows(before["id"], after["id"], resampled)
    return row


def _test_by_t(gains: Sequence[float]) -> dict[str, float]:
    """Return the 95 % interval and p of the two-sided paired t test."""
    if len(gains) < LEAST or np.ptp(gains) <= 1e-12 * np.abs(gains).max():
        return dict.fromkeys(("low", "high", "p"), math.nan)
    from scipy.stats import ttest_rel

    tested = ttest_rel(gains, np.zeros(len(gains)))
    low, high = tested.confidence_interval(1 - LEVEL)
    return {"low": float(low), "high": float(high), "p": float(tested.pvalue)}


def count_ks_steps(plain: pd.DataFrame, gru: pd.DataFrame) -> float:
    """Return the change of the mean KS distance over the seeds in common in steps of 1/n; NaN if it is not known."""
    common = plain.index.intersection(gru.index)
    first, second = (side.reindex(index=common, columns=KS).to_numpy(dtype=float) for side in (plain, gru))
    rows = np.minimum(first, second)[:, 1]
    return float(abs((second - first)[:, 0].mean()) * rows.min()) if len(common) else math.nan


def bound_by_rows(plain: pd.Series, gru: pd.Series, resampled: Mapping[str, Array]) -> dict[str, float]:
    """Return the interval of the mean difference over resamples of the rows, from the ids of both sides by seed."""
    pairs = pd.concat([plain, gru], axis=1, join="inner").itertuples(index=False)
    gains = [resampled[with_gru] - resampled[alone] for alone, with_gru in pairs if {alone, with_gru} <= set(resampled)]
    if not gains or len(gains) < len(plain.index.intersection(gru.index)):
        return {}
    low, high = interval(np.mean(gains, axis=0))
    return {"rows_low": low, "rows_high": high}


def _find_direction(row: dict[str, Any], goal: Goal) -> float:
    """Return `find_sign`; seeds are clear by their 95 % interval, with too few for one if all moved the same way."""
    if math.isnan(row["difference"]) or len(row["gains"]) < 2:
        return math.nan
    low, high = (min(row["gains"]), max(row["gains"])) if math.isnan(row["low"]) else (row["low"], row["high"])
    return find_sign(row, goal, clear=not low <= 0 <= high)


def find_sign(row: Mapping[Any, Any], goal: Goal, *, clear: bool) -> float:
    """Return the direction of a change; 0 where it is too small to count, or seeds or rows leave the direction open.

    `clear`: whether the seeds do not. Rows do so where the KS distance changes by one step or less, and where their
    interval of the utility's difference holds 0.
    """
    if not clear or abs(row["difference"]) < resolution(goal):
        return 0.0
    if row.get("ks_steps", math.inf) <= 1 + 1e-6 or row.get("rows_low", 1.0) <= 0 <= row.get("rows_high", 1.0):
        return 0.0
    return 1.0 if goal.gain(row["difference"]) > 0 else -1.0


def resolution(goal: Goal) -> float:
    """Return the least change that counts: one in the last digit that a line of progress shows."""
    return float(10**-goal.digits)


def holm(values: pd.Series) -> pd.Series:
    """Return p values adjusted for being so many (Holm, 1979); NaN stays and does not count."""
    ordered = values.dropna().sort_values()
    raised = ordered * np.arange(len(ordered), 0, -1)
    return raised.cummax().clip(upper=1.0).reindex(values.index)


def measure_gains(differences: Sequence[float]) -> dict[str, float]:
    """Return `low`, `high`, `p` and `effect` of paired differences, NaN below LEAST of them.

    low, high: 95 % BCa bootstrap interval of the mean over seeds (Efron, 1987), somewhat narrow for ten. p: exact
    two-sided sign-flip permutation test of the mean (Fisher, 1935), at least 2 / 2^n. effect: Cohen's d_z, the mean
    over the standard deviation, NaN where all are equal.
    """
    gains = np.array(differences, dtype=float)
    if len(gains) < LEAST:
        return dict.fromkeys(("low", "high", "p", "effect"), math.nan)
    from scipy import stats

    shared: dict[str, Any] = {"vectorized": True, "rng": SEED}
    tested = stats.permutation_test((gains,), np.mean, permutation_type="samples", n_resamples=FLIPS, **shared)
    mean = float(gains.mean())
    if np.ptp(gains) <= 1e-12 * np.abs(gains).max():
        return {"low": mean, "high": mean, "p": float(tested.pvalue), "effect": math.nan}
    ends = stats.bootstrap((gains,), np.mean, n_resamples=RESAMPLES, confidence_level=1 - LEVEL, **shared)
    low, high = map(float, ends.confidence_interval)
    return {"low": low, "high": high, "p": float(tested.pvalue), "effect": mean / float(gains.std(ddof=1))}


def measure_ranks(table: pd.DataFrame) -> dict[str, Any]:
    """Return of a table's columns `ranks` (means over the rows, 1 the largest, ties averaged), `friedman`, `distance`.

    friedman: p of Friedman's test that all columns rank alike. distance: Nemenyi's critical difference of two mean
    ranks, q sqrt(k (k + 1) / 6 N) for N rows and k columns, q the quantile of the studentized range over sqrt(2):
    Demsar (2006), Statistical Comparisons of Classifiers over Multiple Data Sets, section 3.2.2. NaN below LEAST rows.
    """
    rows, columns = table.shape
    ranks = table.rank(axis=1, ascending=False)
    found: dict[str, Any] = {"ranks": ranks.mean().to_dict(), "friedman": math.nan, "distance": math.nan}
    if rows >= LEAST:
        from scipy import stats

        quantile = float(stats.studentized_range.ppf(1 - LEVEL, columns, np.inf)) / math.sqrt(2)
        found["distance"] = quantile * math.sqrt(columns * (columns + 1) / (6 * rows))
        if columns > 2 and np.ptp(ranks.to_numpy()) > 0:
            found["friedman"] = float(stats.friedmanchisquare(*table.to_numpy().T).pvalue)
    return found


def count_least_seeds(rectifiers: int) -> int:
    """Return from how many seeds on one of so many rectifiers can be significant: where m 2 / 2^n <= LEVEL."""
    return max(LEAST, math.ceil(1 + math.log2(rectifiers / LEVEL)))
