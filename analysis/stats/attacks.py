"""What attacks bring back of what each chosen setting removed, as means over its seeds."""

from __future__ import annotations

import pandas as pd

from analysis.stats.chosen_settings import SHORT, STUDY_COLUMNS
from analysis.stats.sweep_results import Results
from trainables.robustness.came_back import read_shares

KEY = [SHORT.get(column, column) for column in STUDY_COLUMNS]
VALUES = ["before", "after", "target", "retain", "share"]


def mean_recovered_shares(results: Results) -> pd.DataFrame:
    """Return a row for each chosen setting, attack and step, in table order: means over the attacked seeds.

    `attacked` of them; `share` is of the `n` that have one, with `share_sd`. Empty where no chosen trial was attacked.
    """
    trials, store = results.chosen_trials[["id", *STUDY_COLUMNS]], results.store
    rows = [{"id": key} | row for key in trials["id"] for row in read_shares(key, store)]
    kept = pd.DataFrame(rows, columns=["id", "attack", "title", "step", *VALUES])
    found = trials.merge(kept, on="id").rename(columns=SHORT)
    if found.empty:
        return found
    groups = found.groupby([*KEY, "attack", "step", "title"], sort=False)
    means = {name: (name, "mean") for name in VALUES}
    return groups.agg(**means, share_sd=("share", "std"), n=("share", "count"), attacked=("id", "size")).reset_index()
