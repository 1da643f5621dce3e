"""A study's axes as Optuna's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from platform.plan.space import Space, nearest, read_setting, spell_setting
from search_spaces.schema.axes import Axis, Range
from trainables.config.trial import Trial

DIGITS = 4
"""Significant digits of a number that is proposed within a range: so many are typed and read again."""


class Parameters:
    """The axes of a space that have more than one value, as Optuna sees them.

    A range is one of Optuna's. Numbers are places in their rising order, `none` after them. Words and seeds are
    choices without an order.
    """

    def __init__(self, space: Space) -> None:
        self.axes = {path: _order(path, axis, space.published[path]) for path, axis in space.axes.items()}
        self.distributions: dict[str, BaseDistribution] = {
            path: found for path, axis in self.axes.items() if (found := _distribution(path, axis)) is not None
        }

    def encode(self, trial: Trial) -> dict[str, Any]:
        """Return the parameters of a trial; what lies outside of an axis is its nearest value."""
        found = {}
        for path, distribution in self.distributions.items():
            axis = self.axes[path]
            value = nearest(axis, read_setting(trial, path))
            if isinstance(distribution, CategoricalDistribution):
                found[path] = spell_setting(value)
            else:
                found[path] = value if isinstance(axis, Range) else axis.index(value)
        return found

    def decode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the point of parameters that Optuna proposes."""
        point: dict[str, Any] = {}
        for path, axis in self.axes.items():
            if isinstance(axis, Range):
                value = params[path]
                point[path] = value if axis.whole else min(max(float(f"{value:.{DIGITS}g}"), axis.low), axis.high)
            elif path not in params:
                (point[path],) = axis
            elif isinstance(params[path], str):
                point[path] = next(one for one in axis if spell_setting(one) == params[path])
            else:
                point[path] = axis[params[path]]
        return point


def _order(path: str, axis: Axis, published: Any) -> Axis:
    """Return an axis with its published value, each value once, numbers in rising order before all else."""
    if isinstance(axis, Range):
        return axis
    values = list(dict.fromkeys((*axis, published)))
    return tuple(sorted(values, key=lambda value: (value is None, value)) if _is_ordered(path, values) else values)


def _is_ordered(path: str, values: Any) -> bool:
    return path != "seed" and all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values
    )


def _distribution(path: str, axis: Axis) -> BaseDistribution | None:
    """Return Optuna's distribution of an axis, None of a single value."""
    if isinstance(axis, Range):
        if axis.whole:
            return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
        return FloatDistribution(axis.low, axis.high, log=axis.log)
    if len(axis) == 1:
        return None
    if _is_ordered(path, axis):
        return IntDistribution(0, len(axis) - 1)
    return CategoricalDistribution([spell_setting(value) for value in axis])
