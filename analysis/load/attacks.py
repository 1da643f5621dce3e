"""What attacks on trials brought back, as `python -m trainables.stress ID` left it in the storage."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from trainables.storage.atomic_files import parse_object
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CAME_BACK

COLUMNS = ["id", "attack", "title", "step", "lr", "before", "after", "target", "retain_before", "retain", "share"]


def read_attacks(trial_ids: Iterable[str], store: Storage | None) -> pd.DataFrame:
    """Return one row for each trial, attack and step of relearning; empty where no trial was attacked.

    `share`: what came back of the removed (trainables.robustness.came_back), NaN where too little was removed.
    """
    if store is None:
        return pd.DataFrame(columns=COLUMNS)
    rows = []
    for key in trial_ids:
        content = store.read_newest(store.stress(key) / CAME_BACK)
        kept = (parse_object(content) if content else None) or {}
        rows += [{"id": key} | row for row in kept.get("shares", ())]
    return pd.DataFrame(rows, columns=COLUMNS)
