"""Every seed of the chosen settings: its goals, the KS distance behind FQ, the bootstrap interval of its utility."""

from __future__ import annotations

import pandas as pd

from analysis.load.goals import goals_of_runs
from analysis.load.trials import evaluated
from analysis.stats import intervals
from analysis.stats.selection import DEFAULT, choose, sort_studies
from trainables.config.settings import Selection
from trainables.storage.base import Storage

KS = ["forget_quality_ks", "forget_rows"]
"""D of the KS test behind a forget quality, and n, the rows of each of its two samples."""
NAMES = {"benchmark.split": "split", "rectifier.name": "rectifier", "rectifier.gamma": "gamma", "rectifier.tau": "tau"}


def table(runs: pd.DataFrame, references: pd.DataFrame, store: Storage, rule: Selection = DEFAULT) -> pd.DataFrame:
    """Return one row a seed of each chosen setting, in table order.

    Columns: split, method, rectifier, gamma, tau, strength, seed, the goals, `low` and `high` (95 % bootstrap interval
    of the goal of retention over the evaluation rows), on TOFU `forget_quality_ks` (D) and `forget_rows` (n), id.
    """
    goals, chosen = goals_of_runs(runs), choose(runs, references, rule)["configuration"]
    trials = runs.loc[evaluated(runs) & runs["configuration"].isin(chosen) & runs[goals.y.column].notna()]
    trials = sort_studies(trials.sort_values("seed", kind="stable"))
    metrics = [goal.metric for goal in goals.compared]
    beside = KS if goals.x.column == "forget_quality" else []
    frame = trials.rename(columns=NAMES).reindex(
        columns=["split", "method", "rectifier", "gamma", "tau", "strength", "seed", *metrics, *beside, "id"]
    )
    return frame.assign(**intervals.bootstrap_trials(trials, store, rule.halves))
