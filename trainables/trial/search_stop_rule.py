"""The stop rule of a search: when a trial ends early, because it falls behind trials that have finished.

At each evaluation by `training.eval_every` a trial is compared with what finished trials of its study measured at the
same step. It ends if so many of them as asked for are better in every goal, by a margin of MARGIN of the range that
finished trials have in that goal at that step, or if its utility is below the floor. A range of fewer than LEAST
trials says too little: till so many have finished only the floor ends one. For one goal this is the median
stopping rule (Golovin et al., Google Vizier, KDD 2017) with a count in the place of the half. For several it counts
the points that dominate one, as Fonseca and Fleming (ICGA 1993) rank them. Successive halving for several goals
(Schmucker et al., arXiv:2106.12639) sorts by domination, too, but pauses trials, which the few dozen long ones of a
study have no room for.
"""

from __future__ import annotations

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
        if sum(_is_better(bar, goals) for bar in self.bars.get(step, ())) < self.enough:
            return None
        return f"{self.enough} finished trials or more were clearly better in every goal (search.stop_dominated)"


def make_stop_rule(histories: Iterable[History], enough: int, floor: float | None) -> StopRule:
    """Return the rule for a trial that begins when the trials with these histories have finished."""
    found: dict[int, list[Point]] = {}
    for history in histories:
        for step, goals in history:
            found.setdefault(step, []).append(goals)
    bars = {step: _list_bars(points, enough) for step, points in found.items() if len(points) >= max(enough, LEAST)}
    return StopRule(enough=enough, floor=floor, bars=bars)


def _list_bars(points: Sequence[Point], enough: int) -> tuple[Point, ...]:
    """Return the points less the margin, without those that `enough` others beat: these beat whatever they beat."""
    kept: list[Point] = []
    for point in sorted(points, reverse=True):  # what beats a point comes before it
        if sum(_is_better(other, point) for other in kept) < enough:
            kept.append(point)
    margins = [MARGIN * (max(values) - min(values)) for values in zip(*points, strict=True)]
    return tuple(tuple(gain - less for gain, less in zip(point, margins, strict=True)) for point in kept)


def _is_better(one: Point, other: Point) -> bool:
    return all(mine > theirs for mine, theirs in zip(one, other, strict=True))


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
