"""What the chosen trials measured along training, read from their steps.parquet: the columns that figures need."""

from __future__ import annotations

import pandas as pd

from analysis.labels import TASK_VECTORS
from analysis.load.trial_tables import read_trial_table
from analysis.stats.chosen_settings import SHORT
from analysis.stats.sweep_results import Results
from trainables.storage.folder_storage import Storage
from trainables.storage.names import STEPS

MEASURED = ["cos_before", "cos_after", "retain_loss", "observed_cos", "observed_cos_after", "observed_retain_loss"]
"""Columns of a rectified step against the moving average, and of `observe=K` every K steps (training.loop)."""
COLUMNS = ["split", "method", "rectifier", "seed", "id", "step", *MEASURED]
LINE = ["split", "method", "rectifier"]
MOST = 250
"""Points of a line that are drawn at most: a figure in print has no room for more."""


def load_steps(results: Results, store: Storage) -> pd.DataFrame:
    """Return one row for each step of every evaluated trial, all seeds, of the settings that the rule chose.

    NaN: not measured. Task vectors have no such steps. Trials whose file is missing or damaged are left out.
    """
    trials = results.chosen_trials.rename(columns=SHORT)
    parts = []
    for trial in trials.loc[~trials["method"].isin(TASK_VECTORS)].to_dict("records"):
        table = read_trial_table(store, store.trial(trial["id"]) / STEPS, ["step", *MEASURED])
        if table is not None and "step" in table.column_names:
            found = table.to_pandas().astype(float)
            parts.append(found.assign(**{name: trial[name] for name in [*LINE, "seed", "id"]}))
    return pd.concat([part.reindex(columns=COLUMNS) for part in parts]) if parts else pd.DataFrame(columns=COLUMNS)


def thin_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a line's rows, of all its seeds, at every K-th of its steps: the smallest K that leaves at most `MOST`.

    One K for all seeds, however long each ran, so that they have the same steps.
    """
    steps = sorted(set(rows["step"]))
    return rows.loc[rows["step"].isin(steps[:: max(1, -(-len(steps) // MOST))])]


def with_means(rows: pd.DataFrame, by: list[str], values: list[str]) -> pd.DataFrame:
    """Return rows of single seeds (`kind` seed, n = 1) and below them their means at each step (`kind` mean).

    A mean is of all seeds of its line: it ends with the first seed that does, for a mean over the others would jump.
    """
    if rows.empty:
        return rows.assign(kind="seed", n=1)
    seeds = rows.groupby(by)["seed"].transform("nunique")
    everyone = rows.groupby([*by, "step"])["seed"].transform("nunique") == seeds
    groups = rows.loc[everyone].groupby([*by, "step"], sort=False)
    means = groups.agg(**{value: (value, "mean") for value in values}, n=("seed", "nunique")).reset_index()
    return pd.concat([rows.assign(kind="seed", n=1), means.assign(kind="mean")], ignore_index=True)
