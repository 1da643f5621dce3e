"""What the trials that are done tell of a plan: what they were made with, and what the rest will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from trainables.common import hashing, provenance
from trainables.common.cli import format_count
from trainables.storage import results as results_
from trainables.storage.base import EVALUATED, RESULT, Storage
from trainables.training.task_vectors import spec

if TYPE_CHECKING:
    from platform.plan.value import Plan

WATCHED = ("torch", "transformers", "deepspeed")
"""Packages whose change may change a trial's numbers."""
ENOUGH = 3
"""So many trials that were evaluated are a better measure of the rest than any estimate."""


class Origin(NamedTuple):
    """What something was made with."""

    code: str | None
    """None: it does not say."""
    commit: str | None
    """Tells people of the code."""
    versions: tuple[str | None, ...]
    """Of WATCHED."""

    def makes_numbers_as(self, other: Origin) -> bool:
        """Another commit may differ in its documents only, the same one may have been changed."""
        return (self.code, self.versions) == (other.code, other.versions)


Strange = tuple[Origin, Origin]
"""What something was made with, and the other thing that this checkout would make it with."""
Note = tuple[Strange | None, bool, float]
"""Of one result: where it comes from if not from this code, whether it was evaluated, and its GPU-seconds."""


@dataclass(frozen=True)
class History:
    """Of the trials of a plan that have a result."""

    strange: tuple[tuple[Strange, int], ...] = ()
    """How many come from what other code, the most frequent first."""
    evaluated: int = 0
    gpu_seconds: float = 0.0
    """Of the evaluated ones; a rank without a GPU counts as one."""
    spent: float = 0.0
    """GPU-seconds of all of them."""
    shared: tuple[tuple[str, Strange], ...] = ()
    """Folders of the storage with what its trials share and other code made."""

    def warning(self) -> str | None:
        """Says which results, and what of that trials share, come from other code than this; None: nothing."""
        here, parts = _shown(_here()), []
        if self.strange:
            count = sum(count for _, count in self.strange)
            kind = "other or unknown" if any(made.code is None for (made, _), _ in self.strange) else "other"
            counted = "; ".join(f"{count} at {_differing(*strange)}" for strange, count in self.strange)
            parts.append(
                f"{format_count(count, 'result')} made by {kind} code than {here}: {counted}; "
                "numbers may differ from new ones, --new sets results aside and makes all of them again"
            )
        if self.shared:
            kept = "; ".join(f"{name} at {_differing(*strange)}" for name, strange in self.shared)
            parts.append(
                f"new trials would be compared with, or start from, what other code than {here} made: {kept}; "
                "--new keeps these, because other sweeps may share them: move them out of the storage to have them "
                "made again"
            )
        return ". ".join(parts) or None

    @property
    def each(self) -> float | None:
        """GPU-seconds of a trial, on average; None where too few are done to tell."""
        return self.gpu_seconds / self.evaluated if self.evaluated >= ENOUGH else None

    def hours(self, left: int) -> float | None:
        """GPU-hours of so many further trials; None where too few are done to tell."""
        return None if self.each is None else self.each * left / 3600


def note(result: Mapping[str, Any]) -> Note:
    """What a history needs of a result."""
    method = result["config"].get("method")
    return strange(result, method), result["status"] in EVALUATED, results_.spent([result])


def strange(made: Mapping[str, Any], method: str | None = None) -> Strange | None:
    """What something with a stamp was made with; None: with this code, or it has no stamp.

    `method`: of a trial, whose code an added objective is.
    """
    versions = made.get("versions")
    if not versions:
        return None
    origin = Origin(made.get("code"), made.get("commit"), tuple(versions.get(name) for name in WATCHED))
    here = _here(method)
    return None if origin.makes_numbers_as(here) else (origin, here)


def shared(plan: Plan, store: Storage) -> tuple[tuple[str, Strange], ...]:
    """Of reference evaluations, models and directions that new trials will not make, because they are there."""
    files = [store.evaluation(ref.evaluation) / RESULT for ref in plan.references]
    files += [store.model(recipe.id()) / hashing.RECIPE for recipe in plan.recipes]
    files += [spec.folder_of(made, store) / RESULT for made in plan.directions()]
    found = []
    for file in filter(store.exists, files):
        other = strange(store.read_json(file) or {})
        if other is not None:
            found.append((file.parent.relative_to(store.root).as_posix(), other))
    return tuple(found)


def of(notes: Iterable[Note]) -> History:
    """Of the notes of all results."""
    notes = list(notes)
    others = Counter(other for other, _, _ in notes if other)
    seconds = [spent for _, evaluated, spent in notes if evaluated]
    return History(tuple(others.most_common()), len(seconds), sum(seconds), sum(spent for _, _, spent in notes))


def _here(method: str | None = None) -> Origin:
    stamp = provenance.stamp(method)
    return Origin(stamp["code"], stamp["commit"], tuple(stamp["versions"][name] for name in WATCHED))


def _shown(origin: Origin) -> str:
    """`commit 0a1b2c3d, code 4e5f6a7b`"""
    return f"{f'commit {origin.commit}' if origin.commit else 'no commit'}, code {origin.code or 'unknown'}"


def _differing(origin: Origin, here: Origin) -> str:
    """`commit 0a1b2c3d, code 4e5f6a7b, torch 2.13.0`: only what differs from `here`."""
    parts = [] if origin.code == here.code else [_shown(origin)]
    known = zip(WATCHED, origin.versions, here.versions, strict=True)
    return ", ".join([*parts, *(f"{name} {found}" for name, found, now in known if found != now)])
