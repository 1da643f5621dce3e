"""What attacks bring back of what each chosen setting removed, as means over its seeds."""

from __future__ import annotations

import pandas as pd

from analysis.stats.chosen_settings import SHORT, STUDY_COLUMNS
from analysis.stats.sweep_results import Results
from trainables.robustness.attack_results import read_trial_attack_results

STUDY_KEY_COLUMNS = [SHORT.get(column, column) for column in STUDY_COLUMNS]
MEASURED_COLUMNS = ["before", "after", "target", "retain", "share"]


def mean_recovered_shares(results: Results) -> pd.DataFrame:
    """Return a row for each chosen setting, attack and step, in table order: means over the attacked seeds.

    `attacked` of them; `share` is of the `n` that have one, with `share_sd`. Empty where no chosen trial was attacked.
    """
    trials, store = results.chosen_trials[["id", *STUDY_COLUMNS]], results.store
    rows = [{"id": key} | row for key in trials["id"] for row in read_trial_attack_results(key, store)]
    kept = pd.DataFrame(rows, columns=["id", "attack", "title", "step", *MEASURED_COLUMNS])
    found = trials.merge(kept, on="id").rename(columns=SHORT)
    if found.empty:
        return found
    groups = found.groupby([*STUDY_KEY_COLUMNS, "attack", "step", "title"], sort=False)
    means = {name: (name, "mean") for name in MEASURED_COLUMNS}
    return groups.agg(**means, share_sd=("share", "std"), n=("share", "count"), attacked=("id", "size")).reset_index()
