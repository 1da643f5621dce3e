"""The points of one study: what is fixed in all its trials, and the axes that they differ by."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from search_spaces.schema.axes import SECTIONS, Axis, Range
from trainables.common.cli import describe_invalid
from trainables.common.errors import InputError
from trainables.config.trial import Trial, check_runnable
from trainables.methods.method_constants import check_counted_once

Point = Mapping[str, Any]
"""The value of each axis by its path."""


@dataclass(frozen=True, eq=False)
class Space:
    """The points of one study.

    `fixed` holds the fields of all its trials, sections as mappings. `published` is the point that the sweep's source
    gives, on the axes that it says nothing of the value nearest to the sweep's own setting; it may be on no axis.
    """

    sweep: str
    fixed: Mapping[str, Any]
    axes: Mapping[str, Axis]
    published: Point

    @property
    def study(self) -> str:
        """Return the name of the study, as Trial.study."""
        fixed = self.fixed
        return f"{fixed['benchmark'].split}/{fixed['method']}/{fixed['rectifier']['name']}"

    @property
    def size(self) -> int | None:
        """Return how many points there are, None of a range of real numbers."""
        counts = [_count(axis) for axis in self.axes.values()]
        return None if None in counts else math.prod(count for count in counts if count is not None)

    @property
    def varied(self) -> list[str]:
        """Return the axes by which its trials differ other than by their seed."""
        return [path for path, axis in self.axes.items() if path != "seed" and _count(axis) != 1]

    @property
    def has_ranges(self) -> bool:
        return any(isinstance(axis, Range) for axis in self.axes.values())

    def make(self, point: Point) -> Trial:
        """Return the trial at a point. Raises InputError if its settings exclude each other."""
        chosen: dict[str, Any] = {
            name: dict(value) if name in SECTIONS and value is not None else value for name, value in self.fixed.items()
        }
        for path, value in point.items():
            section, _, name = path.rpartition(".")
            (chosen[section] if section else chosen)[name] = value
        try:
            trial = Trial.model_validate(chosen)
        except ValidationError as error:
            raise InputError(f"sweep {self.sweep}: {describe_invalid(error)}") from error
        check_runnable(trial)
        check_counted_once(trial.rectifier.name, trial.method, trial.objective, trial.benchmark.split)
        return trial

    def list_points(self) -> Iterator[dict[str, Any]]:
        """Yield every point of axes without ranges, the last axis the fastest."""
        for values in itertools.product(*(dict.fromkeys(axis) for axis in self.axes.values())):  # type: ignore[arg-type]
            yield dict(zip(self.axes, values, strict=True))

    def find_point(self, trial: Trial) -> dict[str, Any] | None:
        """Return the point of a trial, None if the trial is not in this space."""
        point = {path: read_setting(trial, path) for path in self.axes}
        if not all(point[path] in axis for path, axis in self.axes.items()):
            return None
        try:
            return point if self.make(point).id() == trial.id() else None
        except InputError:
            return None


def interpolate(axis: Range, share: float) -> float:
    """Return the number that lies so far along a range, on its own scale."""
    low, high = (math.log(axis.low), math.log(axis.high)) if axis.log else (axis.low, axis.high)
    value = low + share * (high - low)
    value = min(max(math.exp(value) if axis.log else value, axis.low), axis.high)
    return round(value) if axis.whole else value


def read_setting(value: Any, path: str) -> Any:
    """Return a setting of a trial or sweep by its path, None where the section is not there."""
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def spell_setting(value: Any) -> str:
    """Return a setting's value as it is typed: `none`, `true`, `0.1,0.5`."""
    if isinstance(value, tuple):
        return ",".join(map(spell_setting, value)) or "none"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _count(axis: Axis) -> int | None:
    if isinstance(axis, Range):
        return int(axis.high - axis.low) + 1 if axis.whole else None
    return len(set(axis))


def nearest(axis: Axis, value: Any) -> Any:
    """Return the value of an axis that is nearest to `value`; of words the first, where it is not among them."""
    if value in axis:
        return value
    if isinstance(axis, Range):
        near = interpolate(axis, 0.5) if value is None else min(max(value, axis.low), axis.high)
        return round(near) if axis.whole else near
    numbers = [one for one in axis if isinstance(one, int | float)]
    if isinstance(value, int | float) and numbers:
        return min(numbers, key=lambda one: abs(one - value))
    return axis[0]
