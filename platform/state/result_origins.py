"""What results and what trials share were made with, where that is other code than this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from trainables.common import provenance
from trainables.common.wording import format_count

PACKAGES = ("torch", "transformers", "deepspeed")
"""Packages whose change may change a trial's numbers."""


def describe_other_code(documents: Iterable[Mapping[str, Any]], noun: str, advice: str) -> str | None:
    """Return how many of these were made by other code or versions than this checkout's; None if none was."""
    counts = Counter(found for document in documents if (found := _find_difference(document)))
    if not counts:
        return None
    counted = "; ".join(f"{count} at {difference}" for difference, count in counts.most_common())
    here = _describe_code(provenance.stamp())
    return f"{format_count(counts.total(), noun)} made by other code than {here}: {counted}; {advice}"


def _find_difference(made: Mapping[str, Any]) -> str | None:
    """Return what something was made with unlike this checkout: `commit 0a1b2c3d, code 4e5f6a7b, torch 2.13.0`.

    None if code and versions are the same, or it has no stamp. Custom methods of a trial's configuration are code, too.
    """
    versions, config = made.get("versions"), made.get("config") or {}
    if not versions:
        return None
    here = provenance.stamp(str(config.get("method")), str(config.get("rectifier", {}).get("name")))
    parts = [] if made.get("code") == here["code"] else [_describe_code(made)]
    parts += [f"{name} {versions.get(name)}" for name in PACKAGES if versions.get(name) != here["versions"][name]]
    return ", ".join(parts) or None


def _describe_code(made: Mapping[str, Any]) -> str:
    commit = made.get("commit")
    return f"{f'commit {commit}' if commit else 'no commit'}, code {made.get('code') or 'unknown'}"
