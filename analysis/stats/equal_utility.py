"""Removal at equal utility (UWC): every method mixed with the original model until it keeps the same utility.

theta(w) = w theta_u + (1 - w) theta_org; a target is a share of the original model's MU.
"""

from __future__ import annotations

from typing import Literal

import pandas as pd

from analysis.load.trials import evaluated

COLUMNS = ["id", "target", "goal", "weight", "model_utility", "forget_quality", "reached", "monotone"]


def list_mixtures(runs: pd.DataFrame, part: Literal["targets", "evaluations"]) -> pd.DataFrame:
    """Return one row for each calibrated trial and mixture, that for a target or each that was evaluated, `id` first.

    `unmixed`: it is the trial's own model (w = 1), and keeps more than the target.
    """
    known = runs.loc[evaluated(runs) & runs["calibrated"].notna(), ["id", "calibrated"]]
    rows = [
        {"id": trial, "monotone": found["monotone"], **one} for trial, found in known.to_numpy() for one in found[part]
    ]
    frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
    return frame.assign(unmixed=(frame["weight"] == 1) & (frame["model_utility"] > frame["goal"]))
