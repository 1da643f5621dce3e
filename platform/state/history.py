"""What the trials that are done say of a plan: what they were made with, and what the rest will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from platform.plan.estimate import Measured
from platform.plan.value import Plan
from trainables.common import hashing, provenance
from trainables.common.cli import format_count
from trainables.config.trial import Direction
from trainables.storage.base import EVALUATED, RESULT, Storage
from trainables.storage.results import spent
from trainables.training.task_vectors import spec

PACKAGES = ("torch", "transformers", "deepspeed")
"""Packages whose change may change a trial's numbers."""


class Origin(NamedTuple):
    """What something was made with."""

    code: str | None
    """None: it does not say."""
    commit: str | None
    """For people: the code decides."""
    versions: tuple[str | None, ...]
    """Of PACKAGES."""

    def __str__(self) -> str:
        return f"{f'commit {self.commit}' if self.commit else 'no commit'}, code {self.code or 'unknown'}"

    def makes_numbers_as(self, other: Origin) -> bool:
        """Return whether code and versions are the same; commits may differ in documents alone."""
        return (self.code, self.versions) == (other.code, other.versions)

    def differences(self, here: Origin) -> str:
        """Return what differs from `here`: `commit 0a1b2c3d, code 4e5f6a7b, torch 2.13.0`."""
        parts = [] if self.code == here.code else [str(self)]
        known = zip(PACKAGES, self.versions, here.versions, strict=True)
        return ", ".join([*parts, *(f"{name} {version}" for name, version, now in known if version != now)])


@dataclass(frozen=True)
class History:
    """Of the trials of a plan that have a result."""

    others: tuple[tuple[str, int], ...] = ()
    """How other code differs from this, and how many results come from it, the most frequent first."""
    unknown: bool = False
    """Whether some results do not say which code made them."""
    measured: Measured = field(default_factory=Measured)
    spent: float = 0.0
    """GPU-seconds of all of them."""
    shared: tuple[tuple[str, str], ...] = ()
    """Folders of what trials share that other code made, and how it differs from this."""

    def warning(self) -> str | None:
        """Return one line that says what comes from other code than this, None if nothing does."""
        here, parts = _origin_here(), []
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
        return ". ".join(parts) or None


def summarise_results(results: Iterable[Mapping[str, Any]]) -> History:
    """Return the history of these results, without what trials share."""
    results = list(results)
    origins = [_find_other_origin(result, *_names(result["config"])) for result in results]
    others = Counter(origin.differences(here) for origin, here in filter(None, origins))
    evaluated = [result for result in results if result["status"] in EVALUATED]
    return History(
        others=tuple(others.most_common()),
        unknown=any(origin.code is None for origin, _ in filter(None, origins)),
        measured=Measured(len(evaluated), spent(evaluated)),
        spent=spent(results),
    )


def find_shared_of_other_code(
    plan: Plan, directions: Sequence[Direction], store: Storage
) -> tuple[tuple[str, str], ...]:
    """Return the reference evaluations, models and directions that exist, and so are not made by this code."""
    files = [store.evaluation(ref.evaluation) / RESULT for ref in plan.references]
    files += [store.model(recipe.id()) / hashing.RECIPE for recipe in plan.recipes]
    files += [spec.direction_folder(made, store) / RESULT for made in directions]
    found = []
    for file in filter(store.exists, files):
        other = _find_other_origin(store.read_json(file) or {})
        if other is not None:
            origin, here = other
            found.append((file.parent.relative_to(store.root).as_posix(), origin.differences(here)))
    return tuple(found)


def _names(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the method and the rectifier of a trial: files in trainables/methods/custom/ are code of their trials."""
    return str(config.get("method")), str(config.get("rectifier", {}).get("name"))


def _find_other_origin(made: Mapping[str, Any], *names: str) -> tuple[Origin, Origin] | None:
    """Return what something was made with, and what this checkout would make it with; None if they are the same.

    None also for what has no stamp. `names`: see _names.
    """
    versions = made.get("versions")
    if not versions:
        return None
    origin = Origin(made.get("code"), made.get("commit"), tuple(versions.get(name) for name in PACKAGES))
    here = _origin_here(*names)
    return None if origin.makes_numbers_as(here) else (origin, here)


def _origin_here(*names: str) -> Origin:
    stamp = provenance.stamp(*names)
    return Origin(stamp["code"], stamp["commit"], tuple(stamp["versions"][name] for name in PACKAGES))
