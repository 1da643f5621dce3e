"""Every seed of the chosen settings: its goals, the KS distance behind FQ, the bootstrap interval of its utility."""

from __future__ import annotations

import pandas as pd

from analysis.stats.intervals import interval
from analysis.stats.results import Results
from analysis.stats.significance import KS

NAMES = {"benchmark.split": "split", "rectifier.name": "rectifier", "rectifier.gamma": "gamma", "rectifier.tau": "tau"}


def list_seeds(results: Results) -> pd.DataFrame:
    """Return one row a seed of each chosen setting, in table order.

    Columns: split, method, rectifier, gamma, tau, strength, seed, the goals, `low` and `high` (95 % bootstrap interval
    of the goal of retention over the evaluation rows), on TOFU `forget_quality_ks` (D) and `forget_rows` (n), id.
    """
    goals = results.goals
    trials = results.chosen_trials.dropna(subset=[goals.retention.metric])
    metrics = [goal.metric for goal in goals.compared]
    beside = KS if goals.removal.metric == "forget_quality" else []
    frame = trials.rename(columns=NAMES).reindex(
        columns=["split", "method", "rectifier", "gamma", "tau", "strength", "seed", *metrics, *beside, "id"]
    )
    unknown = (float("nan"), float("nan"))
    bounds = [interval(found) if (found := results.resampled.get(key)) is not None else unknown for key in frame["id"]]
    return frame.assign(**pd.DataFrame(bounds, columns=["low", "high"], index=frame.index, dtype=float))
