"""What GRU changes of a method, and whether seeds tell: differences, intervals, tests over the seeds of both sides."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
SIDES = ("none", "gru")
KS = ["forget_quality_ks", "forget_rows"]
"""D of the KS test behind a forget quality, and n, the rows of each of its two samples: D is a multiple of 1/n."""
COLUMNS = ["split", "method", "metric", "n", "none", "gru", "difference", "low", "high", "p", "gains"]
COLUMNS += ["ks_steps", "rows_low", "rows_high", "sign"]


def tests(runs: pd.DataFrame, pairs: pd.DataFrame, goals: Goals, resampled: Mapping[str, Array]) -> pd.DataFrame:
    """Return one row for each split, method and goal of `Results.pairs`.

    n: seeds that both sides have. none, gru: means over these, difference: gru - none as printed, gains: the list of
    gru - none by seed; where no seed is in common (n = 0) the means are over all seeds of each side. low, high: the
    95 % interval of the difference, p: of the two-sided paired t test, both NaN below `LEAST` seeds or where all
    differences are equal. adjusted: p by Holm over all tests of the report. ks_steps: of FQ, by how many steps of 1/n
    the mean KS distance changes. rows_low, rows_high: of utility, the 95 % interval of the difference over the
    evaluation rows, from `Results.resampled`; NaN where it has not all these trials. sign: 1 better with GRU, -1
    worse, 0 no clear change, NaN without two seeds in common.
    """
    measured = runs.loc[evaluated(runs)].drop_duplicates(["configuration", "seed"])
    seeds = {key: group.set_index("seed") for key, group in measured.groupby("configuration")}
    rows = []
    for _, pair in pairs.groupby(["benchmark.split", "method"], sort=False):
        split, method = pair.iloc[0][["benchmark.split", "method"]]
        sides = pair.set_index("rectifier.name")["configuration"]
        for goal in goals.compared:
            plain, gru = (seeds[sides[side]].dropna(subset=[goal.metric]) for side in SIDES)
            row = {"split": split, "method": method, "metric": goal.metric}
            row |= _paired(plain[goal.metric], gru[goal.metric])
            if goal.metric == "forget_quality":
                row["ks_steps"] = count_ks_steps(plain, gru)
            if goal == goals.retention:
                row |= bound_by_rows(plain["id"], gru["id"], resampled)
            rows.append(row | {"sign": _find_sign(row, goal)})
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.assign(adjusted=holm(pd.Series(frame["p"], dtype=float)))


def _paired(plain: pd.Series, gru: pd.Series) -> dict[str, Any]:
    both = pd.concat([plain, gru], axis=1, join="inner", keys=SIDES).sort_index()
    gains = (both["gru"] - both["none"]).to_numpy()
    means = [float(np.mean(side)) for side in ((both["none"], both["gru"]) if len(both) else (plain, gru))]
    means = [round(mean, DECIMALS) for mean in means]
    row: dict[str, Any] = {"n": len(both), **dict(zip(SIDES, means, strict=True))}
    row |= {"difference": round(means[1] - means[0], DECIMALS), "gains": gains.round(DECIMALS).tolist()}
    row |= dict.fromkeys(("low", "high", "p"), float("nan"))
    if len(both) >= LEAST and np.ptp(gains) > 1e-12 * np.abs(gains).max():
        from scipy.stats import ttest_rel

        tested = ttest_rel(both["gru"], both["none"])
        low, high = tested.confidence_interval(1 - LEVEL)
        row |= {"low": float(low), "high": float(high), "p": float(tested.pvalue)}
    return row


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


def _find_sign(row: dict[str, Any], goal: Goal) -> float:
    """Return the direction of a change; 0 where it is too small to count, or seeds or rows leave the direction open.

    Seeds do so where the 95 % interval holds 0; below the seeds that it takes, where not all moved one way. Rows do so
    where the KS distance changes by one step or less, and where their interval of the utility's difference holds 0.
    """
    change, low, high, gains = (row[name] for name in ("difference", "low", "high", "gains"))
    if math.isnan(change) or len(gains) < 2:
        return math.nan
    if math.isnan(low):
        low, high = min(gains), max(gains)
    if abs(change) < resolution(goal) or low <= 0 <= high:
        return 0.0
    if row.get("ks_steps", math.inf) <= 1 + 1e-6 or row.get("rows_low", 1.0) <= 0 <= row.get("rows_high", 1.0):
        return 0.0
    return 1.0 if goal.gain(change) > 0 else -1.0


def resolution(goal: Goal) -> float:
    """Return the least change that counts: one in the last digit that a line of progress shows."""
    return float(10**-goal.digits)


def holm(values: pd.Series) -> pd.Series:
    """Return p values adjusted for being so many (Holm, 1979); NaN stays and does not count."""
    ordered = values.dropna().sort_values()
    raised = ordered * np.arange(len(ordered), 0, -1)
    return raised.cummax().clip(upper=1.0).reindex(values.index)
