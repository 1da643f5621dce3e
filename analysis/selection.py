"""Which trial speaks for a method: averages over seeds, the selection rule, what GRU changes, the Pareto front."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from analysis.runs import STRENGTHS, settings
from trainables.config import METHOD_LABELS

SHARE = 0.9
STUDY = ["benchmark.split", "method", "rectifier.name"]
RECTIFIERS = ["none", "clip", "pcgrad", "gru"]
DECIMALS = 4
RULE = (
    "Trials that differ only in the seed are averaged. Among the settings of one split, method and rectifier, the one "
    f"with the highest FQ is chosen of those whose MU is at least {SHARE:.0%} of the original model's on that split; "
    "where none is, the one with the highest MU. Ties go to the higher other metric, then to the lower trial id."
)


def average(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row a configuration: mean, sd (n - 1) and n over the seeds of its finished trials that have an MU.

    `id` is the lowest of its trials' ids, `planned` counts its trials of whatever status, `seeds` lists those used.
    """
    finished = runs.loc[(runs["status"] == "finished") & runs["model_utility"].notna()]
    rows = finished.groupby([*STUDY, "configuration"]).agg(
        id=("id", "min"),
        gamma=("rectifier.gamma", "first"),
        tau=("rectifier.tau", "first"),
        strength=("strength", "first"),
        seeds=("seed", lambda seeds: ", ".join(f"{seed:g}" for seed in sorted(seeds.dropna()))),
        n=("id", "size"),
        forget_quality=("forget_quality", "mean"),
        forget_quality_sd=("forget_quality", "std"),
        forget_quality_n=("forget_quality", "count"),
        model_utility=("model_utility", "mean"),
        model_utility_sd=("model_utility", "std"),
        model_utility_n=("model_utility", "count"),
        relative_change=("relative_change", "mean"),
    )
    planned = runs["configuration"].value_counts()
    return rows.reset_index().assign(planned=lambda frame: frame["configuration"].map(planned))


def choose(runs: pd.DataFrame, references: pd.DataFrame, share: float = SHARE) -> pd.DataFrame:
    """Return the chosen configuration of every study that has a finished trial (rule: `RULE`), in table order.

    Adds `bar` (share of the original model's MU; NaN without that model), `kept` (MU at or above it) and `settings`
    (how many configurations of the study could be chosen).
    """
    configurations = average(runs)
    original = references.loc[references["role"] == "original"]
    bars = pd.Series(share * original["model_utility"].to_numpy(), index=original["split"].to_numpy(), dtype=float)
    configurations["bar"] = bars.reindex(configurations["benchmark.split"]).to_numpy()
    configurations["kept"] = configurations["model_utility"] >= configurations["bar"]
    studies = configurations.groupby(STUDY)
    configurations["settings"] = studies["id"].transform("size")
    chosen = [_best(study) for _, study in studies]
    return in_order(pd.concat(chosen) if chosen else configurations)


def _best(study: pd.DataFrame) -> pd.DataFrame:
    """Return the one row of `study` that the rule picks."""
    able = study.loc[study["kept"] & study["forget_quality"].notna()]
    if able.empty:
        order = ["model_utility", "forget_quality", "id"]
        return study.sort_values(order, ascending=[False, False, True], na_position="last").head(1)
    return able.sort_values(["forget_quality", "model_utility", "id"], ascending=[False, False, True]).head(1)


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort by split, then by the paper's order of methods (unknown ones last), then none, clip, gru."""
    methods = [*METHOD_LABELS, *sorted(set(frame["method"].dropna()) - set(METHOD_LABELS))]
    ranks = {"method": {name: rank for rank, name in enumerate(methods)}}
    ranks["rectifier.name"] = {name: rank for rank, name in enumerate(RECTIFIERS)}

    def rank(column: pd.Series) -> pd.Series:
        return column.map(ranks[str(column.name)]) if column.name in ranks else column

    return frame.sort_values(STUDY, key=rank, kind="stable", ignore_index=True)


def pareto(points: pd.DataFrame, x: str = "forget_quality", y: str = "model_utility") -> pd.DataFrame:
    """Return the rows that no other row beats (both columns maximised), by falling x; of equal points the first."""
    ranked = points.dropna(subset=[x, y]).sort_values([x, y], ascending=False, kind="stable")
    best_before = ranked[y].cummax().shift(fill_value=-np.inf)
    return ranked.loc[ranked[y] > best_before]


def varied(runs: pd.DataFrame) -> list[str]:
    """Return the settings, besides gamma, tau and a task vector's strength, that differ within at least one study."""
    table = settings(runs).map(str)
    if table.empty:
        return []
    known = {*STUDY, "rectifier.gamma", "rectifier.tau", *STRENGTHS}
    studies = table.groupby([column for column in STUDY if column in table])
    return [column for column in table if column not in known and max(studies[column].nunique()) > 1]


def compare(runs: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Return what GRU changes: one row a split and method with both a plain and a GRU row among `chosen`.

    For FQ and MU: plain and GRU means and their difference, all at printed precision, and `low`, `high`: the 95 %
    Welch interval of the difference over seeds, NaN where a side has fewer than two seeds or no spread.
    """
    rows = []
    for _, pair in chosen.groupby(STUDY[:2], sort=False):
        split, method = pair.iloc[0][STUDY[:2]]
        sides = pair.set_index("rectifier.name")
        if not {"none", "gru"} <= set(sides.index):
            continue
        row = {"split": split, "method": method}
        for side in ("none", "gru"):
            row |= {f"{field}_{side}": sides.at[side, field] for field in ("n", "settings", "kept", "bar")}
        for metric in ("forget_quality", "model_utility"):
            row |= _difference(runs, sides, metric)
        rows.append(row)
    return pd.DataFrame(rows)


def _difference(runs: pd.DataFrame, sides: pd.DataFrame, metric: str) -> dict[str, float]:
    finished = runs.loc[runs["status"] == "finished"].groupby("configuration")[metric]
    plain, gru = (finished.get_group(sides.at[side, "configuration"]).dropna() for side in ("none", "gru"))
    means = [round(float(sides.at[side, metric]), DECIMALS) for side in ("none", "gru")]
    low, high = _interval(gru.to_numpy(), plain.to_numpy())
    difference = round(means[1] - means[0], DECIMALS)
    names = ("none", "gru", "difference", "low", "high")
    return {f"{metric}_{name}": value for name, value in zip(names, (*means, difference, low, high), strict=True)}


def _interval(gru: np.ndarray, plain: np.ndarray) -> tuple[float, float]:
    """Return the 95 % Welch interval of mean(gru) - mean(plain)."""
    if min(len(gru), len(plain)) < 2 or np.ptp(gru) + np.ptp(plain) == 0:
        return float("nan"), float("nan")
    with warnings.catch_warnings():  # one side without spread is exact here: equal seeds give equal numbers
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        interval = ttest_ind(gru, plain, equal_var=False).confidence_interval(0.95)
    return float(interval.low), float(interval.high)
