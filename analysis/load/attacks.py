"""What attacks on trials brought back, as `python -m trainables.stress ID` left it in the storage."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from trainables.robustness.came_back import read_shares
from trainables.storage.folder_storage import Storage

COLUMNS = ["id", "attack", "title", "step", "lr", "before", "after", "target", "retain_before", "retain", "share"]


def read_attacks(trial_ids: Iterable[str], store: Storage | None) -> pd.DataFrame:
    """Return one row for each trial, attack and step of relearning; empty where no trial was attacked.

    `share`: what came back of the removed (trainables.robustness.came_back), NaN where too little was removed.
    """
    rows = [{"id": key} | row for key in trial_ids for row in read_shares(key, store)] if store else []
    return pd.DataFrame(rows, columns=COLUMNS)
