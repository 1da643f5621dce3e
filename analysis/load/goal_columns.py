"""What a benchmark's results are judged by, as tables, figures and sentences name it."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

from analysis.labels import join_names
from trainables.benchmarks import Goal, get_benchmark
from trainables.benchmarks.measures import reported_measures
from trainables.config.settings import Benchmark

BEST_DIRECTION_ARROWS = {"highest": " ↑", "lowest": " ↓", None: ""}
BETTER_DIRECTION_WORDS = {"highest": "higher is better →", "lowest": "lower is better →"}
METRIC_NOTES = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8"))


class MetricColumn(NamedTuple):
    """A column of a table. `form`: the format of its numbers; `best`: which one is bold, None if none is."""

    metric: str
    head: str
    form: str = ".4f"
    best: Literal["highest", "lowest"] | None = None
    text: str = ""


EXTRA_COLUMNS_BY_BENCHMARK = {
    "muse": (MetricColumn("privleak", "PrivLeak"),),
    "own": tuple(
        MetricColumn(
            f"forget_{name}",
            measure.short + BEST_DIRECTION_ARROWS[measure.best],
            best=measure.best,
            text=f"{measure.title} on the forget rows, no goal",
        )
        for name, measure in sorted(reported_measures(Benchmark(name="own")).items(), key=lambda item: item[1].short)
        if f"forget_{name}" != get_benchmark("own").GOALS[0].metric
    ),
}


@dataclass(frozen=True)
class Goals:
    """A benchmark's goals: of removal, one or more, and the one of retention."""

    benchmark: str
    removals: tuple[Goal, ...]
    retention: Goal

    @property
    def columns(self) -> tuple[MetricColumn, ...]:
        goals = [MetricColumn(goal.metric, goal_head(goal), best=goal.best, text=goal.title) for goal in self.all_goals]
        return (*goals, *EXTRA_COLUMNS_BY_BENCHMARK.get(self.benchmark, ()))

    @property
    def all_goals(self) -> tuple[Goal, ...]:
        return (*self.removals, self.retention)

    @property
    def metrics(self) -> list[str]:
        return [column.metric for column in self.columns]

    @property
    def removal_goal(self) -> Goal:
        """Return removal as one goal, of the metric `removal`, the mean over several, where there are several."""
        first = self.removals[0]
        if len(self.removals) == 1:
            return first
        name = f"mean of {join_names(goal.short for goal in self.removals)}"
        return Goal("removal", "removal", first.best, name, name, chance=first.chance)


def list_goals_of_benchmark(benchmark: str) -> Goals:
    """Return the goals of the benchmark called so in a configuration. Raise InputError if there is none."""
    *removals, retention = get_benchmark(benchmark).GOALS
    return Goals(benchmark, tuple(removals), retention)


def goals_of_runs(runs: pd.DataFrame) -> Goals:
    """Return the goals of a sweep's trials; before any has started, of the default benchmark."""
    names = runs["benchmark.name"].dropna()
    return list_goals_of_benchmark(names.iloc[0] if len(names) else Benchmark().name)


def goal_head(goal: Goal) -> str:
    """Return the head of a goal's column: `FQ ↑`, `VerbMem ↓`."""
    return goal.short + BEST_DIRECTION_ARROWS[goal.best]


def goal_axis_title(goal: Goal) -> str:
    """Return `FQ: forget quality (ln p)`."""
    return goal.title if goal.short in goal.title else f"{goal.short}: {goal.title}"
