"""What GRU changes of a method, and whether seeds tell: differences, intervals, tests over the seeds of both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ttest_rel

from analysis.labels import DECIMALS
from analysis.load.goals import Goals
from analysis.load.trials import evaluated
from analysis.stats.selection import STUDY

LEAST, LEVEL = 5, 0.05
"""Seeds below which nothing is tested and no interval is given; the error rate of all tests of a report together."""
SIDES = ("none", "gru")
MEASURED = ["none", "gru", "difference", "low", "high", "p", "gains"]
COLUMNS = ["split", "method", "metric", "n", *MEASURED]


def tests(runs: pd.DataFrame, chosen: pd.DataFrame, goals: Goals) -> pd.DataFrame:
    """Return one row a split, method and goal that is both with and without GRU among the chosen settings.

    n: seeds that both sides have. none, gru: means over these, difference: gru - none as printed, gains: the list of
    gru - none by seed; where no seed is in common (n = 0) the means are over all seeds of each side. low, high: the
    95 % interval of the difference, p: of the two-sided paired t test, both NaN below `LEAST` seeds or where all
    differences are equal. adjusted: p by Holm over all tests of the report.
    """
    measured = runs.loc[evaluated(runs)].drop_duplicates(["configuration", "seed"])
    seeds = {key: group.set_index("seed") for key, group in measured.groupby("configuration")}
    rows = []
    for _, pair in chosen.groupby(STUDY[:2], sort=False):
        split, method = pair.iloc[0][STUDY[:2]]
        sides = pair.set_index("rectifier.name")["configuration"]
        if not set(SIDES) <= set(sides.index):
            continue
        for goal in goals.compared:
            plain, gru = (seeds[sides[side]][goal.metric].dropna() for side in SIDES)
            rows.append({"split": split, "method": method, "metric": goal.metric, **_paired(plain, gru)})
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.assign(adjusted=holm(pd.Series(frame["p"], dtype=float)))


def compare(chosen: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return what GRU changes: one row a split and method of `found`, the `tests` of these chosen settings.

    Of every goal `METRIC_none`, `_gru`, `_difference`, `_low`, `_high`, `_gains`, `_p` (adjusted) and `_n`; of both
    sides `n_none` and `n_gru` (all seeds), `settings_`, `kept_` and `bar_`, as `selection.choose` gives them.
    """
    sides = {key: pair.set_index("rectifier.name") for key, pair in chosen.groupby(STUDY[:2])}
    rows = []
    for _, group in found.groupby(["split", "method"], sort=False):
        split, method = group.iloc[0][["split", "method"]]
        row: dict[str, Any] = {"split": split, "method": method}
        for side in SIDES:
            of = sides[split, method].loc[side]
            row |= {f"{field}_{side}": of[field] for field in ("n", "settings", "kept", "bar")}
        for goal in group.to_dict("records"):
            row |= {f"{goal['metric']}_{name}": goal[name] for name in ("n", *MEASURED)}
            row[f"{goal['metric']}_p"] = goal["adjusted"]
        rows.append(row)
    return pd.DataFrame(rows)


def _paired(plain: pd.Series, gru: pd.Series) -> dict[str, Any]:
    both = pd.concat([plain, gru], axis=1, join="inner", keys=SIDES).sort_index()
    gains = (both["gru"] - both["none"]).to_numpy()
    means = [float(np.mean(side)) for side in ((both["none"], both["gru"]) if len(both) else (plain, gru))]
    means = [round(mean, DECIMALS) for mean in means]
    row: dict[str, Any] = {"n": len(both), **dict(zip(SIDES, means, strict=True))}
    row |= {"difference": round(means[1] - means[0], DECIMALS), "gains": gains.round(DECIMALS).tolist()}
    row |= dict.fromkeys(("low", "high", "p"), float("nan"))
    if len(both) >= LEAST and np.ptp(gains) > 1e-12 * np.abs(gains).max():
        tested = ttest_rel(both["gru"], both["none"])
        low, high = tested.confidence_interval(1 - LEVEL)
        row |= {"low": float(low), "high": float(high), "p": float(tested.pvalue)}
    return row


def holm(values: pd.Series) -> pd.Series:
    """Return p values adjusted for being so many (Holm, 1979); NaN stays and does not count."""
    ordered = values.dropna().sort_values()
    factors = range(len(ordered), 0, -1)
    raised = pd.Series([p * k for p, k in zip(ordered, factors, strict=True)], index=ordered.index, dtype=float)
    return raised.cummax().clip(upper=1.0).reindex(values.index)
