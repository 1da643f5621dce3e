"""What share of the removed an attack brings back, with the retain model under the same attack as the yardstick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainables.robustness.attacks import ATTACKS, NONE, SECOND_HALF, is_relearning
from trainables.storage.atomic_files import parse_object
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CAME_BACK

Results = Mapping[str, Mapping[str, Any]]
"""What was kept of each attack on a model, by the attack's name."""
LEAST = 0.05
"""Where less than this was removed, nothing can be said of what came back."""


def share(before: float, after: float, target: float, retain_gain: float = 0.0) -> float | None:
    """Return (after - before - retain_gain) / (target - before): what came back of what was removed; 1: all.

    After Zhang et al., 2025 (2410.16454). `target`: the target model before the attack. `retain_gain`: what the retain
    model gains by the attack was never removed; what it loses is not added. None where little was removed.
    """
    removed = target - before
    return (after - before - max(0.0, retain_gain)) / removed if removed > LEAST else None


def list_attacks(model: Results, target: Results, retain: Results | None) -> list[dict[str, Any]]:
    """Return for each attack and step its measure before and after, of the other models too, and what came back.

    `target`: under the attack; it is not relearned. An attack that was not made on all models is left out.
    """
    found = []
    for name, attack in ATTACKS.items():
        others = [retain] if is_relearning(name) else [target, retain]
        attacked = [one.get(name) for one in (model, *others) if one is not None]
        made = [one for one in attacked if one and one["points"]]
        if len(made) < len(attacked):
            continue
        rate, measure = made[0]["settings"].get("lr"), attack.measure
        base = NONE, SECOND_HALF if attack.learns == "first half" else "0", measure
        if attack.kind == "answers":
            base = name, "0", f"greedy_{measure}"
        before, full, unseen = (_read(one, *base) for one in (model, target, retain))
        for step in sorted(made[0]["points"], key=int):
            after, learnt = _read(model, name, step, measure), _read(retain, name, step, measure)
            row = {"attack": name, "step": int(step), "lr": rate, "title": attack.title}
            row["title"] += f" (lr {rate:g}), step {step}" if rate else ""
            row |= {"before": before, "after": after, "retain_before": unseen, "retain": learnt}
            row["target"] = full if is_relearning(name) else _read(target, name, step, measure)
            gain = (learnt or 0.0) - (unseen or 0.0)
            found.append(row | {"share": share(before or 0.0, after or 0.0, full or 0.0, gain)})
    return found


def _read(results: Results | None, name: str, point: str, measure: str) -> float | None:
    return float(results[name]["points"][point][measure]) if results else None


def read_attacks(key: str, started: str | None, store: Storage) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the settings of each attack on a trial or a model folder, and `list_attacks`, as they are kept.

    Both are empty where it was not attacked. `started`: of the trial's run; of an earlier one nothing is returned.
    """
    kept = parse_object(store.read_newest(store.stress(key) / CAME_BACK) or b"") or {}
    if not kept or kept.get("started") != started:
        return {}, []
    return kept.get("attacks", {}), kept.get("shares", [])


def read_shares(trial_id: str, store: Storage) -> list[dict[str, Any]]:
    """Return what is kept of `list_attacks` of a trial's newest run; empty where that was not attacked."""
    return read_attacks(trial_id, (store.result(trial_id) or {}).get("started"), store)[1]
