"""Axes of a sweep: which settings may be varied, over which values or which range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from trainables.config.method_tables import MAIN_SETTINGS, RECTIFIERS
from trainables.config.settings import Benchmark, FrozenSettings, Objective, Rectifier, TaskVector, Training
from trainables.config.trial import Trial

STUDY_PATHS = ("benchmark.split", "method", "rectifier.name")
"""Each combination of values of these axes is one Optuna study. They take words, never ranges."""
SECTIONS: dict[str, type[FrozenSettings]] = {
    "rectifier": Rectifier,
    "objective": Objective,
    "training": Training,
    "task_vector": TaskVector,
}
TOP_LEVEL_AXES = ("method", "seed")
NON_AXIS_PATHS = {"training.betas", "objective.idk", "objective.idk_fingerprint"}
"""One value is two numbers; a plan names a file's content once for all trials."""


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, both included; whole ones if both ends are. `log`: drawn on a log scale."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"the range {self} is empty; write the smaller number first")
        if self.log and self.low <= 0:
            raise ValueError(f"the range {self} begins where there is no logarithm; begin above 0")

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def __contains__(self, value: object) -> bool:
        if not (isinstance(value, int | float) and self.low <= value <= self.high):
            return False
        return not self.is_whole or float(value).is_integer()

    def __str__(self) -> str:
        ends = f"{self.low:g}..{self.high:g}"
        return f"log({ends})" if self.log else ends


Axis = tuple[Any, ...] | Range


@cache
def list_axis_paths() -> tuple[str, ...]:
    """Return the configuration paths that may be axes: what a trial is measured by is the same in a whole sweep."""
    inside = {f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.model_fields}
    return tuple(sorted({*TOP_LEVEL_AXES, "benchmark.split", *inside} - NON_AXIS_PATHS))


@cache
def setting_type(path: str, root: type[FrozenSettings] = Trial) -> TypeAdapter[Any]:
    """Return the type of a setting of `root`, or where it has none of trials."""
    section, _, name = path.rpartition(".")
    kind: Any = {"benchmark": Benchmark, **SECTIONS}.get(section)
    if kind is None:
        kind = root.model_fields[section].annotation if section else root if name in root.model_fields else Trial
    field = kind.model_fields[name]
    annotated: Any = Annotated
    return TypeAdapter(annotated[(field.annotation, *field.metadata, field)])


def check_value(path: str, value: Any) -> Any:
    """Return one value of an axis in its field's type. Raises ValueError that repeats it."""
    try:
        return setting_type(path).validate_python(value)
    except ValidationError as error:
        words = dict.fromkeys(item["msg"].removeprefix("Value error, ") for item in error.errors())
        raise ValueError(f"{path}: {' or '.join(words)} (got {value!r})") from error


def check_axis(path: str, axis: Any) -> Axis:
    """Return an axis with its values in their field's type. Raises ValueError with field, value, what is accepted."""
    if path not in list_axis_paths():
        raise ValueError(f"{path} cannot be an axis; known: {', '.join(list_axis_paths())}")
    if isinstance(axis, Range):
        ends = [check_value(path, end) for end in (axis.low, axis.high)]
        if any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
            raise ValueError(f"{path}: takes words, which have no range (got {axis}); write its values")
        return Range(*ends, log=axis.log) if all(isinstance(end, int) for end in ends) else axis
    if isinstance(axis, str) or not isinstance(axis, Sequence) or not axis:
        raise ValueError(f"{path}: write a tuple of values or Range(LOW, HIGH) (got {axis!r})")
    return tuple(check_value(path, value) for value in axis)


def axis_to_json(axis: Axis) -> Any:
    """Return an axis as JSON."""
    return {"low": axis.low, "high": axis.high, "log": axis.log} if isinstance(axis, Range) else list(axis)


def rectifier_requires_value(rectifier: str, path: str) -> bool:
    """Return whether a rectifier needs a value of gamma or tau, so that `none` is no point of its axis."""
    section, _, name = path.rpartition(".")
    return section == "rectifier" and name in MAIN_SETTINGS and name in RECTIFIERS[rectifier].requires
