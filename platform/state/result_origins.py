"""What finished trials say of a plan: what they were made with, and what the rest will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from platform.plan.plan import Plan
from platform.plan.remaining_time import Measured, sum_gpu_seconds
from trainables.common import fingerprints, provenance
from trainables.common.wording import format_count
from trainables.config.shared_artifacts import Direction
from trainables.storage.folder_storage import Storage
from trainables.storage.names import EVALUATED, RESULT
from trainables.training.task_vectors import forget_batches

PACKAGES = ("torch", "transformers", "deepspeed")
"""Packages whose change may change a trial's numbers."""


@dataclass(frozen=True)
class History:
    """What is known of the trials of a plan that have a result."""

    others: tuple[tuple[str, int], ...] = ()
    """How other code differs from this, and how many results come from it, the most frequent first."""
    unknown: bool = False
    """Whether some results do not say which code made them."""
    measured: Measured = field(default_factory=Measured)
    spent: float = 0.0
    """GPU-seconds of all of them."""
    shared: tuple[tuple[str, str], ...] = ()
    """Folders of what trials share that other code made, and how it differs from this."""

    unobserved: int = 0
    """Results without the observations that the plan asks for."""

    def warning(self) -> str | None:
        """Return one line that says what comes from other code than this or was not observed, None if nothing."""
        here, parts = _describe_code(provenance.stamp()), []
        if self.others:
            kind = "other or unknown" if self.unknown else "other"
            counted = "; ".join(f"{count} at {difference}" for difference, count in self.others)
            parts.append(
                f"{format_count(sum(count for _, count in self.others), 'result')} made by {kind} code than {here}: "
                f"{counted}; numbers may differ from new ones, --new sets results aside and makes all of them again"
            )
        if self.shared:
            folders = "; ".join(f"{name} at {difference}" for name, difference in self.shared)
            parts.append(
                f"new trials would be compared with, or start from, what other code than {here} made: {folders}; "
                "--new keeps these, because other sweeps may share them: move them out of the storage to have them "
                "made again"
            )
        if self.unobserved:
            made = format_count(self.unobserved, "result")
            parts.append(f"{made} made without observe, which pictures along training need; --new makes them again")
        return ". ".join(parts) or None


def summarise_results(results: Iterable[Mapping[str, Any]]) -> History:
    """Return the history of these results, without what trials share."""
    results = list(results)
    others = [(result, found) for result in results if (found := _find_difference(result, result["config"]))]
    evaluated = [result for result in results if result["status"] in EVALUATED]
    return History(
        others=tuple(Counter(difference for _, difference in others).most_common()),
        unknown=any(result.get("code") is None for result, _ in others),
        measured=Measured(len(evaluated), sum_gpu_seconds(evaluated)),
        spent=sum_gpu_seconds(results),
    )


def find_shared_of_other_code(
    plan: Plan, directions: Sequence[Direction], store: Storage
) -> tuple[tuple[str, str], ...]:
    """Return the reference evaluations, models and directions that exist, and so are not made by this code."""
    files = [store.evaluation(ref.evaluation) / RESULT for ref in plan.references]
    files += [store.model(recipe.id()) / fingerprints.RECIPE for recipe in plan.recipes]
    files += [forget_batches.direction_folder(made, store) / RESULT for made in directions]
    found = []
    for file in filter(store.exists, files):
        if difference := _find_difference(store.read_json(file) or {}):
            found.append((file.parent.relative_to(store.root).as_posix(), difference))
    return tuple(found)


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
