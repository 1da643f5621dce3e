"""One benchmark a module: its rows, its metrics, its dialects, behind the functions that callers need.

`find(name)` gives the module of the benchmark called `name` in a configuration. A new benchmark is one module here
that has what `Kind` lists, and its name in `trainables.config.BenchmarkName` (docs/decisions/0005). Importing one
brings neither torch nor transformers nor lm-eval: plans, listings and status read them too.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

from trainables.common.errors import InputError, closest
from trainables.common.tokens import Example
from trainables.config.settings import Benchmark, BenchmarkName
from trainables.data.hub import HubRequirement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAMES: tuple[str, ...] = get_args(BenchmarkName)

Row = dict[str, Any]
Records = list[dict[str, Any]]
"""One a question or text: what a row of evaluation.parquet holds."""
Metrics = dict[str, float | int | None]
Examples = Sequence[Example]


@dataclass(frozen=True)
class Goal:
    """A metric that removal is weighed against retention by. `short` and `digits` are for one line of progress."""

    metric: str
    side: Literal["removal", "retention"]
    best: Literal["highest", "lowest"]
    short: str
    title: str
    digits: int = 3

    def gain(self, value: float) -> float:
        """The value, turned so that more is better."""
        return value if self.best == "highest" else -value


@dataclass(frozen=True)
class Extent:
    """How much text there is to forget: rows (None: not known), and tokens of a row, on average and at most."""

    points: int | None
    mean: float
    longest: int


class Kind(Protocol):
    """What every benchmark module has. A `reference` is what it needs of the retain model's evaluation."""

    @property
    def GOALS(self) -> tuple[Goal, ...]:
        """Removal first, one goal of retention last."""
        ...

    @property
    def TARGET(self) -> str:
        """The role of the target model: a folder of `models`, or the rows it is fine-tuned on."""
        ...

    def published_data(self, split: str) -> str:
        """The hub id of the rows."""
        ...

    def retain_role(self, split: str) -> str | None:
        """The role of the retain model of a split, such as `retain95`; None: the benchmark has no retain model."""
        ...

    def check(self, benchmark: Benchmark) -> None:
        """Raise InputError where a setting is none of this benchmark's. Reads no file."""
        ...

    def check_rows(self, benchmark: Benchmark) -> None:
        """Raise InputError where folders do not hold what training and evaluation read. Leaves the hub alone."""
        ...

    def hub_requirements(self, benchmark: Benchmark) -> tuple[HubRequirement, ...]:
        """What a start has to fetch from the hub, each with the setting that names a folder instead."""
        ...

    def fingerprint(self, benchmark: Benchmark) -> str:
        """What all that a trial reads holds: `files:HASH` where a folder is among it, else `hub:ID@REVISION`."""
        ...

    def evaluation_fingerprint(self, benchmark: Benchmark) -> str:
        """The same of what an evaluation reads."""
        ...

    def shared_fingerprint(self, benchmark: Benchmark) -> str:
        """The same of what every split of a sweep reads."""
        ...

    def forget_points(self, benchmark: Benchmark) -> int | None:
        """How many forget points there are, None where that is not known before they are fetched or cut."""
        ...

    def extent(self, benchmark: Benchmark, max_length: int) -> Extent:
        """Roughly how much there is to train on, told before a tokenizer has seen it: for plans."""
        ...

    def training_rows(self, benchmark: Benchmark) -> tuple[list[Row], list[Row]]:
        """Forget rows and retain rows as they are trained on, before any tokenizer."""
        ...

    def training_examples(self, benchmark: Benchmark, tokenizer: Any, max_length: int) -> tuple[Examples, Examples]:
        """Forget rows and retain rows as tokens, at most `max_length` each."""
        ...

    def measure(
        self, network: Any, tokenizer: Any, benchmark: Benchmark, reference: Any, *, token_budget: int
    ) -> tuple[Metrics, Records]:
        """Every metric, and the records they are made of. Raises TrialStopped where the model has diverged."""
        ...

    def half(self, benchmark: Benchmark, records: Records, reference: Any, which: int) -> Metrics:
        """The metrics of one half of the records, `every_other(records, which)`, against that half of the reference."""
        ...

    @property
    def UTILITY_COLUMNS(self) -> tuple[str, ...]:
        """What `utility_parts` reads of a record, beside its task."""
        ...

    def utility_parts(self, benchmark: Benchmark, records: Records) -> list[NDArray[np.float64]]:
        """What the goal of retention is made of: (rows, numbers) of each set of rows, in the order of the records.

        It is the harmonic mean of the means of all numbers. Empty where it is made of more than records.
        """
        ...

    def kept(self, benchmark: Benchmark, records: Records) -> dict[str, Any]:
        """What an evaluation keeps beside its metrics, so that it can be a reference."""
        ...

    def reference(self, kept: Mapping[str, Any] | None, benchmark: Benchmark, where: str) -> Any:
        """The reference in a kept evaluation. Raises InputError, led by `where`, if it is of other rows."""
        ...


def find(name: str) -> Kind:
    """The benchmark called `name`. Raises InputError naming the closest."""
    if name not in NAMES:
        raise InputError(f"benchmark.name: unknown benchmark '{name}'; {closest(name, NAMES)}")
    return cast(Kind, importlib.import_module(f"{__name__}.{name}"))


def every_other(records: Records, which: int) -> Records:
    """Of each task the records 0, 2, 4, ... (`which` 0) or 1, 3, 5, ... (1)."""
    return [record for record in records if record["index"] % 2 == which]


def halves(benchmark: Benchmark, records: Records, reference: Any) -> list[Metrics] | None:
    """The metrics on either half of the rows: one to choose by, one to report. None where a half lacks a task."""
    tasks = {record["task"] for record in records}
    if any({record["task"] for record in every_other(records, which)} != tasks for which in (0, 1)):
        return None
    return [find(benchmark.name).half(benchmark, records, reference, which) for which in (0, 1)]


def outcome(name: str, metrics: Mapping[str, Any]) -> str:
    """The goals of a result in one phrase: `FQ -5.21, MU 0.640`."""
    told = [(goal, metrics.get(goal.metric)) for goal in find(name).GOALS]
    return ", ".join(f"{goal.short} {'null' if value is None else f'{value:.{goal.digits}f}'}" for goal, value in told)


def gains(name: str, metrics: Mapping[str, Any]) -> tuple[float, ...] | None:
    """The goals' values turned so that more is better, retention last; None where one is missing."""
    goals = find(name).GOALS
    if any(metrics.get(goal.metric) is None for goal in goals):
        return None
    return tuple(goal.gain(metrics[goal.metric]) for goal in goals)
