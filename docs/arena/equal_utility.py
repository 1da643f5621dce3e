"""Print extraction strength at equal utility: where the line between two learning rates of a seed crosses 90 % of MU.

`python docs/arena/equal_utility.py` from the root: from tables/trials.csv, the three seeds that were run at all rates.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

ORIGINAL = 0.9075  # MU of the original model on the half that is reported: tables/main.md
MU, ES = "model_utility", "forget_extraction_strength"


def cross(rates: pd.DataFrame) -> float:
    """Return ES where MU first falls to the floor as the learning rate rises, NaN where it never does."""
    rows = rates.sort_values("training.lr")[[MU, ES]].to_numpy()
    for (high, before), (low, after) in pairwise(rows):
        if high >= 0.9 * ORIGINAL > low:
            return float(np.interp(0.9 * ORIGINAL, [low, high], [after, before]))
    return float("nan")


trials = pd.read_csv(Path(__file__).parent / "tables" / "trials.csv")
trials = trials.loc[trials["seed"] <= 2]
sides = trials.groupby(["method", "rectifier.name", "seed"])[["training.lr", MU, ES]].apply(cross)
table = sides.unstack("seed")
print(table.assign(mean=table.mean(axis=1)).sort_values(["method", "mean"]).round(3).to_string())
