"""Every seed of the chosen settings: its goals, the KS distance behind FQ, the bootstrap interval of its utility."""

from __future__ import annotations

import pandas as pd

from analysis.load import goals
from analysis.runs import evaluated
from analysis.stats import intervals
from analysis.stats.selection import DEFAULT, choose, in_order
from analysis.tables.format import DASH, number, split_label
from analysis.tables.main import described, task_vectors
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
    what, chosen = goals.of(runs), choose(runs, references, rule)["configuration"]
    trials = runs.loc[evaluated(runs) & runs["configuration"].isin(chosen) & runs[what.y.column].notna()]
    trials = in_order(trials.sort_values("seed", kind="stable"))
    metrics = [goal.metric for goal in what.compared]
    beside = KS if what.x.column == "forget_quality" else []
    frame = trials.rename(columns=NAMES).reindex(
        columns=["split", "method", "rectifier", "gamma", "tau", "strength", "seed", *metrics, *beside, "id"]
    )
    return frame.assign(**intervals.of_trials(trials, store, rule.halves))


def printed(frame: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return `table` as texts."""
    what, vectors = goals.of(runs), task_vectors(runs)
    rows = []
    for row in frame.to_dict("records"):
        told = described(row["method"], row["rectifier"], *(row[field] for field in ("gamma", "tau", "strength")))
        line = {"Split": split_label(row["split"]), **told, "Seed": f"{row['seed']:g}"}
        for goal in what.compared:
            line[goal.short] = number(row[goal.metric])
            if goal.metric == "forget_quality":
                line |= {"KS D": number(row[KS[0]], 3), "n": DASH if pd.isna(row[KS[1]]) else f"{row[KS[1]]:g}"}
        known = not pd.isna(row["low"])
        line["95% of rows"] = f"{number(row['low'])} to {number(row['high'])}" if known else DASH
        rows.append(line | {"Trial": row["id"]})
    hidden = [] if vectors else ["strength"]
    return pd.DataFrame(rows, dtype="str").drop(columns=hidden, errors="ignore")


def caption(frame: pd.DataFrame, runs: pd.DataFrame) -> str:
    """Return what the columns mean, and for how many seeds there is no interval."""
    name = goals.of(runs).retention.short
    text = (
        f"Every seed behind the main table. 95% of rows: percentile bootstrap interval of {name} "
        f"({intervals.RESAMPLES:,} resamples of the evaluation rows, each task's among themselves): how far {name} "
        "hangs on the rows it was measured on; it says nothing about other seeds."
    )
    if KS[0] in frame:
        text += " KS D: the largest distance between the two models' distributions of truth ratios, over n rows of each"
        text += "; FQ is the natural logarithm of the exact p-value of this D at this n."
    lacking = sum(frame["low"].isna())
    return text + (f" No interval, for want of rows that give {name}: {lacking} of {len(frame)} seeds." * bool(lacking))
