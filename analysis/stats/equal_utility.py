"""Removal at equal utility (UWC): every method mixed with the original model until it keeps the same utility.

theta(w) = w theta_u + (1 - w) theta_org; a target is a share of the original model's MU.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.load.trials import evaluated

TARGETS = ["id", "target", "goal", "weight", "model_utility", "forget_quality", "reached", "monotone", "unmixed"]
CURVE = ["id", "weight", "model_utility", "forget_quality"]


def targets(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each calibrated trial and target, `id` first; `unmixed`: more than it is kept at w = 1."""
    rows = [
        {"id": trial, "monotone": found["monotone"], **target}
        for trial, found in _calibrated(runs)
        for target in found["targets"]
    ]
    frame = pd.DataFrame(rows).reindex(columns=TARGETS)
    return frame.assign(unmixed=(frame["weight"] == 1) & (frame["model_utility"] > frame["goal"]))


def curve(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each calibrated trial and mixture that was evaluated, by rising w (0: original model)."""
    rows = [{"id": trial, **point} for trial, found in _calibrated(runs) for point in found["evaluations"]]
    return pd.DataFrame(rows).reindex(columns=CURVE).sort_values(["id", "weight"], ignore_index=True)


def _calibrated(runs: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    known = runs.loc[evaluated(runs) & runs["calibrated"].notna()]
    return list(zip(known["id"], known["calibrated"], strict=True))
