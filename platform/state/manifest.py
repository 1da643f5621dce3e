"""A sweep's manifest, STORAGE/sweeps/NAME-HASH.json: its trials' ids, its reference evaluations and its commands.

Here are also the commands that resume a sweep or name its storage.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from platform.state.lock import LockFile
from platform.state.sweep_state import SweepState
from trainables.common import paths, provenance
from trainables.common.cli import default_storage
from trainables.common.errors import InputError, closest
from trainables.storage.base import Storage
from trainables.storage.files import read_json, write_json


def write_manifest(state: SweepState, store: Storage, command: str) -> dict[str, Any]:
    """Write the sweep's file; trials of earlier starts of the same sweep stay listed."""
    plan = state.plan
    path = store.sweep(plan.sweep.name, plan.hash)
    earlier = read_json(path) or {}
    trials = list(dict.fromkeys([*earlier.get("trials", []), *(trial.id() for trial in plan.trials)]))
    target = len(trials)
    if plan.strategy == "optuna":  # a study ends at its budget, most points are never run
        target = sum(store.result(key) is not None for key in trials) + state.outstanding
    references = [{"role": ref.role, "split": ref.split, "evaluation": ref.evaluation} for ref in plan.references]
    kept = [ref for ref in earlier.get("references", []) if ref["split"] not in {new["split"] for new in references}]
    document = {
        "name": plan.sweep.name,
        "hash": plan.hash,
        "title": plan.sweep.title,
        "backbone": plan.backbone(),
        "created": earlier.get("created", provenance.now()),
        "command": command,
        "commands": _commands(earlier, command),
        "strategy": plan.strategy,
        "selection": plan.sweep.selection.model_dump(mode="json"),
        "target": target,
        "trials": trials,
        "references": kept + references,
    }
    write_json(path, document)
    store.push(path)
    return document


def load_manifest(name: str, store: Storage) -> dict[str, Any]:
    """Return the sweep called NAME (its newest) or NAME-HASH. Raises InputError that lists the known ones."""
    return find_sweeps(name, store)[0]


def find_sweeps(name: str, store: Storage) -> list[dict[str, Any]]:
    """Return the sweeps called NAME, newest first, or the one NAME-HASH. Raises InputError with the known ones."""
    store.sync_trials()
    folder = store.root / "sweeps"
    found = {file: read_json(file) for file in sorted(folder.glob("*.json"))}
    named: dict[str, list[dict[str, Any]]] = {}
    for item in filter(None, found.values()):
        for label in (item["name"], f"{item['name']}-{item['hash']}"):
            named.setdefault(label, []).append(item)
    if name in named:
        return sorted(named[name], key=lambda item: item["created"], reverse=True)
    for file in (file for file, item in found.items() if item is None and file.stem.startswith(name)):
        raise InputError(f"{file} is damaged; --resume of that sweep sets it aside and writes it anew")
    for file in sorted(folder.glob("*.lock")):
        if name in (file.stem, file.stem.rpartition("-")[0]):
            state = LockFile(file).read()
            if state is not None and state.alive is False:
                raise InputError(f"sweep {file.stem} was interrupted while it was prepared; start it again")
            raise InputError(f"sweep {file.stem} is still being prepared (data, models, reference evaluations)")
    known = closest(name, named) if named else store.explain_empty()
    raise InputError(f"no sweep '{name}' in {store.location}; {known}")


def _commands(earlier: dict[str, Any], command: str) -> list[str]:
    """Return the commands whose trials a sweep's file lists, each once, in the order in which they were first typed."""
    typed = [*earlier.get("commands", [earlier["command"]] if "command" in earlier else []), command]
    found: dict[str, str] = {}
    for one in typed:
        found.setdefault(resume_command(one), one)
    return list(found.values())


def resume_command(command: str, storage: str | None = None) -> str:
    """Return the command that resumes what `command` began. `storage`: an option that replaces the command's own."""
    names = ("--reason",) if storage is None else ("--reason", "--storage")
    kept = drop_options(shlex.split(command), names, ("--new", "--resume", "--retry-failed"))
    return f"{shlex.join([*kept, '--resume'])}{storage or ''}"


def drop_options(words: Iterable[str], names: Sequence[str], flags: Sequence[str] = ()) -> list[str]:
    """Return a command's words without the options `names`, which take a value, and `flags`, which take none."""
    kept, parts = [], iter(words)
    for part in parts:
        if part in names:
            next(parts, None)
        elif part.partition("=")[0] not in (*names, *flags):
            kept.append(part)
    return kept


def storage_option(store: Storage) -> str:
    """Return the option that names this storage, empty for the default one."""
    default = default_storage()
    if store.is_remote:
        return "" if store.location == default else f" --storage {shlex.quote(store.location)}"
    same = "://" not in default and store.root == paths.expand(default).absolute()
    return "" if same else f" --storage {shlex.quote(str(paths.shorten(store.root)))}"
