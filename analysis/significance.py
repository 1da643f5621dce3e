"""Whether seeds tell GRU from no GRU: paired tests over the seeds that both sides have, from five seeds on."""

from __future__ import annotations

import pandas as pd
from scipy.stats import ttest_rel

from analysis.goals import Goals
from analysis.runs import evaluated
from analysis.selection import STUDY

LEAST, LEVEL = 5, 0.05
"""Seeds below which nothing is tested; the error rate of all tests of a report together."""
COLUMNS = ["split", "method", "metric", "n", "difference", "p", "adjusted"]


def tests(runs: pd.DataFrame, chosen: pd.DataFrame, what: Goals) -> pd.DataFrame:
    """Return one row a split, method and goal that is both with and without GRU among the chosen settings.

    n: seeds that both sides have; difference: the mean of GRU - none over these; p: of the two-sided paired t test,
    NaN below `LEAST` seeds or where all differences are equal; adjusted: by Holm over all tests of the report.
    """
    measured = runs.loc[evaluated(runs)].drop_duplicates(["configuration", "seed"])
    seeds = {key: group.set_index("seed") for key, group in measured.groupby("configuration")}
    rows = []
    for _, pair in chosen.groupby(STUDY[:2], sort=False):
        split, method = pair.iloc[0][STUDY[:2]]
        sides = pair.set_index("rectifier.name")["configuration"]
        if not {"none", "gru"} <= set(sides.index):
            continue
        for goal in what.compared:
            both = pd.concat([seeds[sides[side]][goal.metric] for side in ("none", "gru")], axis=1, join="inner")
            rows.append({"split": split, "method": method, "metric": goal.metric, **_paired(both.dropna())})
    frame = pd.DataFrame(rows, columns=COLUMNS[:-1])
    return frame.assign(adjusted=holm(pd.Series(frame["p"], dtype=float)))


def beside(comparison: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return `selection.compare`'s rows with `METRIC_p`, the adjusted p value of each goal; NaN where not tested."""
    if comparison.empty:
        return comparison
    wide = found.pivot(index=["split", "method"], columns="metric", values="adjusted").add_suffix("_p")
    return comparison.merge(wide, how="left", left_on=["split", "method"], right_index=True)


def _paired(both: pd.DataFrame) -> dict[str, float]:
    plain, gru = both.iloc[:, 0], both.iloc[:, 1]
    differences = gru - plain
    p = float("nan")
    if len(both) >= LEAST and differences.max() - differences.min() > 1e-12 * differences.abs().max():
        p = float(ttest_rel(gru, plain).pvalue)
    return {"n": len(both), "difference": float(differences.mean()), "p": p}


def holm(values: pd.Series) -> pd.Series:
    """Return p values adjusted for being so many (Holm, 1979); NaN stays and does not count."""
    ordered = values.dropna().sort_values()
    factors = range(len(ordered), 0, -1)
    raised = pd.Series([p * k for p, k in zip(ordered, factors, strict=True)], index=ordered.index, dtype=float)
    return raised.cummax().clip(upper=1.0).reindex(values.index)
