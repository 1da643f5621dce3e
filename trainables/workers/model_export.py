"""The export of a chosen trial's model, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from trainables.common.cli import silence_libraries
from trainables.config.settings import Selection
from trainables.storage.opening import open_unchecked


def make_export(trial_id: str, root: str, folder: str, why: str, rule: Selection) -> None:
    """Write a chosen trial's model into a folder of the storage, verified, with its card."""
    silence_libraries()
    from trainables.trial.export import model_folder

    store = open_unchecked(root)
    place = Path(store.local_path(folder))
    model_folder.export(trial_id, store, place, why, rule)
    store.push(place)
