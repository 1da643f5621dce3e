"""What a person chose for a start of a sweep."""

from __future__ import annotations

from dataclasses import dataclass, field

from platform.state.limits import Limits


@dataclass(frozen=True)
class Options:
    """What a person chose for a start, beside the plan."""

    address: str | None = None
    max_concurrent: int | None = None
    keep: str = "pareto"
    limits: Limits = field(default_factory=Limits)
