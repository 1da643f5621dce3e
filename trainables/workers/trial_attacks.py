"""The attacks on a chosen trial, in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence

from trainables.storage.opening import open_unchecked


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
