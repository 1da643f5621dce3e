"""What share of the removed an attack brings back, with the retain model under the same attack as the yardstick."""

from collections.abc import Mapping
from typing import Any

from trainables.robustness.attacks import ATTACKS, NO_ATTACK, RECOVERY_MEASURE, SECOND_HALF, SWEEP_ATTACK, is_relearning
from trainables.storage.atomic_files import parse_json_object
from trainables.storage.file_names import ATTACK_RESULTS_FILE
from trainables.storage.folder_storage import Storage

Results = Mapping[str, Mapping[str, Any]]
MIN_REMOVED_MEASURE = 0.05
"""Where less than this was removed, nothing can be said of what came back."""


def recovered_share(before: float, after: float, target: float, retain_gain: float = 0.0) -> float | None:
    """Return (after - before - retain_gain) / (target - before): what came back of what was removed; 1: all.

    After Zhang et al., 2025 (2410.16454). What the retain model gains was never removed. None where little was removed.
    """
    removed = target - before
    return (after - before - max(0.0, retain_gain)) / removed if removed > MIN_REMOVED_MEASURE else None


def list_recoveries(model: Results, target: Results, retain: Results | None) -> list[dict[str, Any]]:
    """Return for each attack and step its measure before and after, of the other models too, and what came back.

    The target model is not relearned. An attack that was not made on all models is left out.
    """
    found = []
    for name, attack in ATTACKS.items():
        others = [retain] if is_relearning(name) else [target, retain]
        attacked = [one.get(name) for one in (model, *others) if one is not None]
        made = [one for one in attacked if one and one["points"]]
        if len(made) < len(attacked):
            continue
        rate, rows = made[0]["settings"].get("lr"), SECOND_HALF if attack.learns in ("first half", "several") else "0"
        before, full, unseen = (_read(one, NO_ATTACK, rows) for one in (model, target, retain))
        for step in sorted(made[0]["points"], key=int):
            after, learnt = _read(model, name, step), _read(retain, name, step)
            row = {"attack": name, "step": int(step), "lr": rate, "title": attack.title}
            if rate:
                row["title"] += f", around lr {rate:g}" if name == SWEEP_ATTACK else f" (lr {rate:g}), step {step}"
            row |= {"before": before, "after": after, "retain_before": unseen, "retain": learnt}
            row["target"] = full if is_relearning(name) else _read(target, name, step)
            gain = (learnt or 0.0) - (unseen or 0.0)
            if name == SWEEP_ATTACK:
                row |= {"worst": made[0]["points"][step], "retain_worst": made[-1]["points"][step] if retain else None}
            found.append(row | {"share": recovered_share(before or 0.0, after or 0.0, full or 0.0, gain)})
    return found


def _read(results: Results | None, name: str, point: str) -> float | None:
    return float(results[name]["points"][point][RECOVERY_MEASURE]) if results else None


def read_attack_results(key: str, started: str | None, store: Storage) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return settings and `list_recoveries` as they are kept of a model, of the trial's run that `started` then."""
    kept = (
        parse_json_object(store.read_current_bytes(store.attack_results_folder(key) / ATTACK_RESULTS_FILE) or b"") or {}
    )
    if not kept or kept.get("started") != started:
        return {}, []
    return kept.get("attacks", {}), kept.get("shares", [])


def read_trial_recovery(trial_id: str, store: Storage) -> list[dict[str, Any]]:
    """Return what is kept of `list_recoveries` of a trial's newest run; empty where that was not attacked."""
    return read_attack_results(trial_id, (store.result(trial_id) or {}).get("started"), store)[1]
