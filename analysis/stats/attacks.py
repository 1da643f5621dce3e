"""What attacks bring back of what each chosen setting removed, as means over its seeds."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.load.attacks import read_attacks
from analysis.stats.chosen_settings import SHORT, STUDY_COLUMNS
from analysis.stats.sweep_results import Results

KEY = [SHORT.get(column, column) for column in STUDY_COLUMNS]
VALUES = ["before", "after", "target", "retain", "share"]


def mean_shares(results: Results) -> pd.DataFrame:
    """Return a row for each chosen setting, attack and step, in table order: means over the attacked seeds.

    `attacked` of them; `share` is of the `n` that have one, with `share_sd`. Empty where no chosen trial was attacked.
    """
    trials = results.chosen_trials[["id", *STUDY_COLUMNS]]
    found = trials.merge(read_attacks(trials["id"], results.store), on="id").rename(columns=SHORT)
    if found.empty:
        return found
    averaged = {name: (name, "mean") for name in VALUES} | {
        "share_sd": ("share", "std"),
        "n": ("share", "count"),
        "attacked": ("id", "size"),
    }
    return found.groupby([*KEY, "attack", "step", "title"], sort=False).agg(**averaged).reset_index()


def last_steps(points: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each attack's last step."""
    if points.empty:
        return points
    last: Any = points.groupby("attack")["step"].transform("max")
    return points.loc[points["step"] == last]
