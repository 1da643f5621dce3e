"""A sweep on disk: STORAGE/sweeps/NAME-HASH.json, the list of its trials' ids and of its reference evaluations."""

from __future__ import annotations

from typing import Any

from platform.plan import Plan
from trainables import provenance, storage
from trainables.errors import InputError, closest
from trainables.storage import Storage


def write(plan: Plan, store: Storage, command: str) -> dict[str, Any]:
    """Write the sweep's file; trials of earlier starts of the same sweep stay listed."""
    path = store.sweep(plan.sweep.name, plan.hash)
    earlier = storage.read_json(path) or {}
    trials = [*earlier.get("trials", []), *(trial.id() for trial in plan.trials)]
    references = [{"role": ref.role, "split": ref.split, "evaluation": ref.evaluation} for ref in plan.references]
    kept = [ref for ref in earlier.get("references", []) if ref["split"] not in {new["split"] for new in references}]
    document = {
        "name": plan.sweep.name,
        "hash": plan.hash,
        "title": plan.sweep.title,
        "created": earlier.get("created", provenance.now()),
        "command": command,
        "strategy": plan.strategy,
        "selection": plan.sweep.selection.model_dump(mode="json"),
        "trials": list(dict.fromkeys(trials)),
        "references": kept + references,
    }
    storage.write_json(path, document)
    return document


def read(name: str, store: Storage) -> dict[str, Any]:
    """The sweep called NAME (its newest) or NAME-HASH. Raises InputError naming what is there."""
    folder = store.root / "sweeps"
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    found = [item for item in (storage.read_json(file) for file in files) if item]
    fitting = [item for item in found if name in (item["name"], f"{item['name']}-{item['hash']}")]
    if not fitting:
        names = [f"{item['name']}-{item['hash']}" for item in found]
        raise InputError(f"no sweep '{name}' in {store.root}; {closest(name, names) if names else 'it holds none'}")
    return max(fitting, key=lambda item: item["created"])


def counts(sweep: dict[str, Any], store: Storage) -> dict[str, int]:
    """Trials by outcome; `missing` have no result yet."""
    tally: dict[str, int] = {"total": len(sweep["trials"])}
    for trial_id in sweep["trials"]:
        result = store.result(trial_id)
        status = result["status"] if result else "missing"
        tally[status] = tally.get(status, 0) + 1
    return tally
