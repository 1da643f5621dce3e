"""The stop rule of a search: when a trial ends early, because it falls behind trials that have finished.

At each evaluation by `training.eval_every` a trial is compared with what finished trials of its study measured at the
same step. It ends if so many of them as asked for are better in every goal, by a margin of MARGIN of the range that
finished trials have in that goal at that step, or if its utility is below the floor. It is the median stopping rule
(Golovin et al., KDD 2017) with a count in the place of the half, and domination (Fonseca and Fleming, 1993) for goals.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainables import benchmarks
from trainables.benchmarks.selection import metrics_of
from trainables.config.settings import Selection, Value
from trainables.config.types import Count

MARGIN = 0.1
LEAST = 5
"""The fewest finished trials at a step with which a trial is compared."""
Point = tuple[float, ...]
"""A gain for each goal of the benchmark: more is better, utility is last."""
History = Sequence[tuple[int, Point]]
"""Step and goals of each evaluation of a trial, on the rows that its selection rule goes by."""


class StopRule(Value):
    """What ends one trial. `bars`: by step, goals of finished trials less the margin; `enough` of them end it."""

    enough: Count
    floor: float | None = None
    bars: Mapping[int, tuple[Point, ...]] = {}

    def find_reason(self, step: int, goals: Point | None) -> str | None:
        """Return why a trial with these goals ends at `step`, None if it goes on or has no goals."""
        if goals is None:
            return None
        if self.floor is not None and goals[-1] < self.floor:
            return f"the utility is below {self.floor:.4g} (search.floor)"
        better = [bar for bar in self.bars.get(step, ()) if all(map(operator.gt, bar, goals))]
        if len(better) < self.enough:
            return None
        return f"{self.enough} finished trials or more were clearly better in every goal (search.stop_dominated)"


def make_stop_rule(histories: Iterable[History], enough: int, floor: float | None) -> StopRule:
    """Return the rule for a trial that begins when the trials with these histories have finished."""
    found: dict[int, list[Point]] = {}
    for history in histories:
        for step, goals in history:
            found.setdefault(step, []).append(goals)
    bars = {}
    for step, points in found.items():
        if len(points) >= max(enough, LEAST):
            margins = [MARGIN * (max(values) - min(values)) for values in zip(*points, strict=True)]
            bars[step] = tuple(tuple(map(operator.sub, point, margins)) for point in points)
    return StopRule(enough=enough, floor=floor, bars=bars)


def read_history(result: Mapping[str, Any]) -> list[tuple[int, Point]]:
    """Return the history of a finished trial; of others, and of a trial without intermediate evaluations, nothing."""
    if result["status"] != "finished":
        return []
    config, found = result["config"], []
    chosen = Selection.model_validate(config.get("selection") or {})
    for entry in result.get("evaluations") or ():
        measured = metrics_of({"metrics": entry, "halves": entry.get("halves")}, chosen)
        goals = benchmarks.goal_gains(config["benchmark"]["name"], measured)
        found += [(entry["step"], goals)] if goals is not None else []
    return found
