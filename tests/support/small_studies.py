"""Spaces of NPO with GRU, and their studies searched to the end: for tests of what is proposed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from platform.plan.spaces import Space
from platform.schedule.study import Study
from search_spaces.schema.axes import Axis, Range
from search_spaces.schema.sweep import Search
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import Trial

Outcome = tuple[float, float] | None


def make_space(
    axes: dict[str, Axis], split: str = "forget05", seed: int = 0, published: Mapping[str, Any] = MappingProxyType({})
) -> Space:
    """NPO with GRU over these axes; the published point is the first value of each, or as given."""
    benchmark = Benchmark(split=split, fingerprint="files:0")
    fixed: dict[str, Any] = {"target": Model(path="m", fingerprint="files:1"), "benchmark": benchmark, "seed": seed}
    fixed |= {"method": "npo", "rectifier": {"name": "gru"}, "objective": {}, "training": {}, "task_vector": None}
    first = {path: axis.low if isinstance(axis, Range) else axis[0] for path, axis in axes.items()}
    first |= published
    return Space("some", fixed, axes, first)


def drain(study: Study, worth: Callable[[Trial], Outcome]) -> list[Trial]:
    """Ask and tell until nothing is left or proposed; return the trials in order."""
    asked = []
    while study.remaining and (trial := study.ask()) is not None:
        asked.append(trial)
        study.tell(trial.id(), worth(trial))
    return asked


def search(
    space: Space, budget: int, worth: Callable[[Trial], Outcome], sampler: Any = "tpe", **given: Any
) -> list[Trial]:
    known = (
        [space.make_trial(space.published)]
        if space.has_ranges
        else [space.make_trial(one) for one in space.list_points()]
    )
    return drain(Study(space, known, budget, {}, search=Search(sampler=sampler), **given), worth)
