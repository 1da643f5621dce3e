"""TOFU, MUSE, WMDP and a person's own rows: each is a file or a folder here, found by its name.

A new benchmark is one file: a subclass of a benchmark (docs/decisions/0005). Plans read them, too: without torch.
"""

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from trainables.benchmarks import measures
from trainables.benchmarks.base import BenchmarkBase, Examples, Goal, Metrics, Records, Row, TrainingSize, every_other
from trainables.common.errors import InputError, first_error_line, suggest_name
from trainables.config.settings import Benchmark
from trainables.config.types import list_benchmark_names

__all__ = ["BenchmarkBase", "Examples", "Goal", "Metrics", "Records", "Row", "TrainingSize", "every_other"]


@cache
def get_benchmark(name: str) -> BenchmarkBase:
    """Return the benchmark called `name`. Raises InputError naming the closest, or what is wrong with its file."""
    if name not in list_benchmark_names():
        raise InputError(f"benchmark.name: unknown benchmark '{name}'; {suggest_name(name, list_benchmark_names())}")
    try:
        module = importlib.import_module(f"{__name__}.{name}")
        defined = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
        return next(one for one in defined if isinstance(one, type) and issubclass(one, BenchmarkBase))()
    except Exception as error:
        raise InputError(f"trainables/benchmarks/{name}: {first_error_line(error)}") from error


def compute_metrics_of_each_half(benchmark: Benchmark, records: Records, reference: Any) -> list[Metrics] | None:
    """Return the metrics on either half of the rows: one to choose by, one to report. None if a half lacks a task."""
    tasks = {record["task"] for record in records}
    parts = [every_other(records, which) for which in (0, 1)]
    if any({record["task"] for record in part} != tasks for part in parts):
        return None
    chosen = get_benchmark(benchmark.name)
    found = [chosen.half_metrics(benchmark, part, reference, which) for which, part in enumerate(parts)]
    added = [measures.aggregate_measures(benchmark, part, chosen.COMPARED_TASKS) for part in parts]
    return [one | metrics for one, metrics in zip(added, found, strict=True)]


def format_goal_values(name: str, metrics: Mapping[str, Any]) -> str:
    """Return the goals of a result in one phrase: `FQ -5.21, MU 0.640`."""
    values = [(one, metrics.get(one.metric)) for one in get_benchmark(name).GOALS]
    return ", ".join(f"{one.short} {'null' if value is None else f'{value:.{one.digits}f}'}" for one, value in values)


def list_searchable_goals(benchmark: Benchmark) -> dict[str, Goal]:
    """Return what can be searched for, by name: the benchmark's goals, and the measures that are asked for."""
    chosen = get_benchmark(benchmark.name)
    known = {goal.metric: goal for goal in chosen.GOALS}
    for name, measure in measures.list_requested_measures(benchmark).items():
        metric = f"{name}_auc" if measure.membership else f"{chosen.FORGET_TASK}_{name}"
        known[name] = Goal(metric, "removal", measure.best, measure.short, measure.title)
    return known


def choose_search_goals(benchmark: Benchmark, names: Sequence[str]) -> tuple[Goal, ...]:
    """Return the goals of a search, retention last: those named, else the benchmark's. Raises InputError."""
    own, known = get_benchmark(benchmark.name).GOALS, list_searchable_goals(benchmark)
    for name in names:
        if name not in known:
            hint = f"{suggest_name(name, known)}; benchmark.measures asks for more"
            raise InputError(f"search.goals: '{name}' is not measured on {benchmark.name}; {hint}")
        if known[name].metric.endswith("_auc"):
            raise InputError(f"search.goals: {name} is best where it is the retain model's, not where it is lowest")
    if names and own[-1].metric not in names:
        raise InputError(f"search.goals: name {own[-1].metric}, too: what is kept is weighed against what is removed")
    return tuple(sorted((known[name] for name in names), key=lambda goal: goal.side == "retention")) or own


def orient_goal_values(name: str, metrics: Mapping[str, Any], goals: Sequence[Goal] = ()) -> tuple[float, ...] | None:
    """Return the goals' values turned so that more is better, retention last; None where one is missing."""
    goals = goals or get_benchmark(name).GOALS
    if any(metrics.get(goal.metric) is None for goal in goals):
        return None
    return tuple(goal.orient_value(metrics[goal.metric]) for goal in goals)
