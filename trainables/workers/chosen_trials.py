"""What is done with a chosen trial, in a process of its own: the export of its model, and the attacks on it."""

from __future__ import annotations

from collections.abc import Sequence
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


def attack_trial(trial_id: str, names: Sequence[str], lr: float | None, root: str) -> str:
    """Attack a trial whose weights are kept; return in words which attack brought back most."""
    from trainables.robustness import attack_models

    store = open_unchecked(root)
    shares, _ = attack_models.attack(attack_models.read_trial(trial_id, store), names, lr, 0, store)
    known = [row for row in shares if row["share"] is not None]
    if not known:
        return "attacked; hardly anything was removed" if shares else "no attack could be made"
    worst = max(known, key=lambda row: row["share"])
    return f"attacked; most came back by {worst['title']}: {worst['share']:.0%}"
