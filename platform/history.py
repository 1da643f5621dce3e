"""What the trials that are done tell of a plan: what they were made with, and what the rest will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import platform.gate as gate
from trainables import directions, fingerprints, provenance, storage
from trainables.storage import Storage

if TYPE_CHECKING:
    from platform.plan import Plan

WATCHED = ("torch", "transformers", "deepspeed")
"""Packages whose change may change a trial's numbers."""
ENOUGH = 3
"""So many trials that were evaluated are a better measure of the rest than any estimate."""

Origin = tuple[str | None, str | None, tuple[str | None, ...]]
"""The code (None: of a result that does not say), the commit that tells people of it, and the versions of WATCHED."""
Note = tuple[Origin | None, bool, float]
"""Of one result: its origin, whether it was evaluated, and its GPU-seconds."""


@dataclass(frozen=True)
class History:
    """Of the trials of a plan that have a result."""

    origins: tuple[tuple[Origin, int], ...] = ()
    """How many were made with what, the most frequent first."""
    evaluated: int = 0
    gpu_seconds: float = 0.0
    """Of the evaluated ones; a rank without a GPU counts as one."""
    spent: float = 0.0
    """GPU-seconds of all of them."""
    shared: tuple[tuple[str, Origin], ...] = ()
    """What its trials share and is there: a folder of the storage, and what it was made with."""

    def warning(self) -> str | None:
        """Says which results, and what of that trials share, come from other code than this; None: nothing."""
        here, told = _here(), []
        others = [(origin, count) for origin, count in self.origins if _number_making(origin) != _number_making(here)]
        if others:
            kind = "other or unknown code" if any(origin[0] is None for origin, _ in others) else "other code"
            counted = "; ".join(f"{count} at {_told(origin, here)}" for origin, count in others)
            told.append(
                f"{sum(count for _, count in others)} results were made by {kind} than {_told(here, None)}: {counted}; "
                "their numbers may differ from new ones, --new sets them aside and makes all of them again"
            )
        strange = [(name, origin) for name, origin in self.shared if _number_making(origin) != _number_making(here)]
        if strange:
            kept = "; ".join(f"{name} at {_told(origin, here)}" for name, origin in strange)
            told.append(
                f"new trials would be compared with, or start from, what other code than {_told(here, None)} made: "
                f"{kept}; --new keeps these, because other sweeps may share them: move them out of the storage to have "
                "them made again"
            )
        return ". ".join(told) or None

    def hours(self, left: int) -> float | None:
        """GPU-hours of so many further trials; None where too few are done to tell."""
        return self.gpu_seconds / self.evaluated * left / 3600 if self.evaluated >= ENOUGH else None


def note(result: Mapping[str, Any]) -> Note:
    """What a history needs of a result."""
    return origin_of(result), result["status"] in storage.EVALUATED, gate.spent([result])


def origin_of(made: Mapping[str, Any]) -> Origin | None:
    """What something with a stamp was made with; None: it has none."""
    versions = made.get("versions")
    watched = tuple(versions.get(name) for name in WATCHED) if versions else ()
    return (made.get("code"), made.get("commit"), watched) if versions else None


def shared(plan: Plan, store: Storage) -> tuple[tuple[str, Origin], ...]:
    """Reference evaluations, models and directions that new trials of a plan will not make, because they are there."""
    files = [store.evaluation(ref.evaluation) / storage.RESULT for ref in plan.references]
    files += [store.model(recipe.id()) / fingerprints.RECIPE for recipe in plan.recipes]
    files += [directions.folder_of(made, store) / storage.RESULT for made in plan.directions()]
    found = []
    for file in filter(store.there, files):
        store.fetch(file)
        origin = origin_of(storage.read_json(file) or {})
        if origin is not None:
            found.append((file.parent.relative_to(store.root).as_posix(), origin))
    return tuple(found)


def of(notes: Iterable[Note]) -> History:
    """Of the notes of all results."""
    notes = list(notes)
    origins = Counter(origin for origin, _, _ in notes if origin)
    seconds = [spent for _, evaluated, spent in notes if evaluated]
    return History(tuple(origins.most_common()), len(seconds), sum(seconds), sum(spent for _, _, spent in notes))


def _here() -> Origin:
    stamp = provenance.stamp()
    return stamp["code"], stamp["commit"], tuple(stamp["versions"][name] for name in WATCHED)


def _number_making(origin: Origin) -> tuple[str | None, tuple[str | None, ...]]:
    """Without the commit: another one may differ in its documents only, the same one may have been changed."""
    return origin[0], origin[2]


def _told(origin: Origin, here: Origin | None) -> str:
    """`commit 0a1b2c3d, code 4e5f6a7b, torch 2.13.0`; with `here`, only what differs from it."""
    code, commit, versions = origin
    parts = []
    if here is None or code != here[0]:
        parts = [f"commit {commit}" if commit else "no commit", f"code {code or 'unknown'}"]
    if here:
        known = zip(WATCHED, versions, here[2], strict=True)
        parts += [f"{name} {found}" for name, found, now in known if found != now]
    return ", ".join(parts)
