"""Every seed of the chosen settings: its goals, the KS distance behind FQ, the bootstrap interval of its utility."""

from __future__ import annotations

import pandas as pd

from analysis.stats import intervals
from analysis.stats.results import Results
from trainables.storage.base import Storage

KS = ["forget_quality_ks", "forget_rows"]
"""D of the KS test behind a forget quality, and n, the rows of each of its two samples."""
NAMES = {"benchmark.split": "split", "rectifier.name": "rectifier", "rectifier.gamma": "gamma", "rectifier.tau": "tau"}


def table(results: Results, store: Storage) -> pd.DataFrame:
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
    return frame.assign(**intervals.bootstrap_trials(trials, store, results.rule.halves))
