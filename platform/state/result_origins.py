"""What results and what trials share were made with, where that is other code than this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from platform.plan.plan import Plan
from trainables.common import fingerprints, provenance
from trainables.common.wording import format_count
from trainables.config.shared_artifacts import Direction
from trainables.storage.folder_storage import Storage
from trainables.storage.names import RESULT
from trainables.training.task_vectors import forget_batches

PACKAGES = ("torch", "transformers", "deepspeed")
"""Packages whose change may change a trial's numbers."""


def warn_of_results(results: Sequence[Mapping[str, Any]], unobserved: int) -> Iterator[str]:
    """Yield what results come from other code, and that `unobserved` of them lack what the plan asks to observe."""
    others = [(result, found) for result in results if (found := _find_difference(result, result["config"]))]
    if others:
        kind = "other or unknown" if any(result.get("code") is None for result, _ in others) else "other"
        counts = Counter(difference for _, difference in others).most_common()
        counted = "; ".join(f"{count} at {difference}" for difference, count in counts)
        yield (
            f"{format_count(len(others), 'result')} made by {kind} code than {_describe_code(provenance.stamp())}: "
            f"{counted}; numbers may differ from new ones, --new sets results aside and makes all of them again"
        )
    if unobserved:
        made = format_count(unobserved, "result")
        yield f"{made} made without observe, which pictures along training need; --new makes them again"


def warn_of_shared(plan: Plan, directions: Sequence[Direction], store: Storage) -> Iterator[str]:
    """Yield what reference evaluations, models and directions exist that other code made."""
    files = [store.evaluation(ref.evaluation) / RESULT for ref in plan.references]
    files += [store.model(recipe.id()) / fingerprints.RECIPE for recipe in plan.recipes]
    files += [forget_batches.direction_folder(made, store) / RESULT for made in directions]
    made = {file.parent: _find_difference(store.read_json(file) or {}) for file in filter(store.exists, files)}
    folders = [f"{folder.relative_to(store.root).as_posix()} at {found}" for folder, found in made.items() if found]
    if folders:
        yield (
            f"new trials would be compared with, or start from, what other code than "
            f"{_describe_code(provenance.stamp())} made: {'; '.join(folders)}; --new keeps these, because other sweeps "
            "may share them: move them out of the storage to have them made again"
        )


def _find_difference(made: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> str | None:
    """Return what something was made with unlike this checkout: `commit 0a1b2c3d, code 4e5f6a7b, torch 2.13.0`.

    None if code and versions are the same, or it has no stamp. `config`: of a trial, whose custom methods are code.
    """
    versions = made.get("versions")
    if not versions:
        return None
    names = (str(config.get("method")), str(config.get("rectifier", {}).get("name"))) if config else ()
    here = provenance.stamp(*names)
    parts = [] if made.get("code") == here["code"] else [_describe_code(made)]
    parts += [f"{name} {versions.get(name)}" for name in PACKAGES if versions.get(name) != here["versions"][name]]
    return ", ".join(parts) or None


def _describe_code(made: Mapping[str, Any]) -> str:
    commit = made.get("commit")
    return f"{f'commit {commit}' if commit else 'no commit'}, code {made.get('code') or 'unknown'}"
