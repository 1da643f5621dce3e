"""The stop rule of a search: against a plain re-statement, on the rows that it may look at, and in a trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis
from hypothesis import strategies as st

from trainables.trial.search_stop_rule import MARGIN, History, Point, StopRule, make_stop_rule, read_history

GOALS = st.tuples(st.integers(-6, 0).map(float), st.integers(0, 6).map(lambda sixth: sixth / 6))
HISTORIES = st.lists(st.dictionaries(st.integers(1, 3), GOALS).map(lambda found: list(found.items())), max_size=9)


def should_stop(histories: Sequence[History], step: int, goals: Point, enough: int, floor: float | None) -> bool:
    """Count, point by point, who was better by a tenth of the range of that step in every goal."""
    if floor is not None and goals[1] < floor:
        return True
    there = [point for history in histories for at, point in history if at == step]
    if len(there) < 5:  # the range of so few says little
        return False
    better = 0
    for quality, utility in there:
        by_quality = MARGIN * (max(q for q, _ in there) - min(q for q, _ in there))
        by_utility = MARGIN * (max(u for _, u in there) - min(u for _, u in there))
        better += quality - by_quality > goals[0] and utility - by_utility > goals[1]
    return better >= enough


@hypothesis.settings(deadline=None, max_examples=150)
@hypothesis.given(HISTORIES, st.integers(1, 3), GOALS, st.integers(1, 4), st.none() | st.just(0.4))
def test_a_trial_ends_where_enough_finished_ones_were_better_in_every_goal_at_the_same_step(
    histories: list[History], step: int, goals: Point, enough: int, floor: float | None
) -> None:
    """The rule keeps only the points that it needs, and travels to a worker as JSON."""
    rule = StopRule.model_validate_json(make_stop_rule(histories, enough, floor).model_dump_json())
    assert (rule.find_reason(step, goals) is not None) == should_stop(histories, step, goals, enough, floor)
    assert rule.find_reason(step, None) is None
    assert rule.find_reason(4, (-9.0, 0.5)) is None


def result(status: str = "finished", *, halves: bool) -> dict[str, Any]:
    entries = [
        {"step": step, "forget_quality": -3.0, "model_utility": 0.3}
        | ({"halves": [{"forget_quality": -4.0, "model_utility": step / 10}, {}]} if halves else {})
        for step in (2, 4)
    ]
    config = {"benchmark": {"name": "tofu"}, "selection": {"halves": halves}}
    return {"status": status, "config": config, "evaluations": entries}


def test_it_sees_finished_trials_on_the_rows_that_are_not_reported() -> None:
    assert read_history(result(halves=True)) == [(2, (-4.0, 0.2)), (4, (-4.0, 0.4))]
    assert read_history(result(halves=False)) == [(2, (-3.0, 0.3)), (4, (-3.0, 0.3))]
    assert read_history(result("stopped", halves=False)) == []
    without = result(halves=False)
    without["config"]["selection"] = {"halves": True}  # of a version that listed no halves
    assert read_history(without) == []
    assert read_history(result(halves=True) | {"evaluations": None}) == []
