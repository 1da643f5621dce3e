"""How what trials share is asked of Ray: where ranks lie, and how often a lost machine's work begins again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from platform.driver import run_on_ray
from platform.plan.build import make_plan
from platform.preparation import hub, prepare
from platform.schedule.session import Placement
from platform.state.limits import Limits, Stopper
from search_spaces.schema import sweep as spaces
from tests.support.small_sweep import Small
from trainables.storage.base import Storage
from trainables.workers import launcher


class Asked(Exception):
    """Ends a start where the test has seen enough."""


@pytest.mark.parametrize("strategy", ["STRICT_PACK", "PACK"])
def test_a_directions_ranks_lie_where_a_trials_do(
    small: Small, store: Storage, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    placed = []

    def launch(direction: Any, store: Storage, resources: Any, micro_batch: int, strategy: str) -> None:
        placed.append((resources.ranks, strategy))
        raise Asked

    monkeypatch.setattr(launcher, "launch_direction", launch)
    monkeypatch.setattr(hub, "fetch", lambda *arguments: None)
    for step in ("_make_fictional_data", "_make_models", "_make_evaluations", "_warn_of_weak_targets"):
        monkeypatch.setattr(prepare, step, lambda *arguments: None)
    state = small.state(store, "resources.ranks=2", only=["method=tv"])
    with pytest.raises(Asked):
        run_on_ray.prepare_and_tune(state, store, "", Stopper(Limits()), Placement(1, strategy, lambda: None), "none")
    assert placed == [(2, strategy)]


def test_what_is_shared_outlives_three_lost_machines(
    small: Small, store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def remote(make: Any) -> Any:
        def options(**given: Any) -> Any:
            asked.append((make.__name__, given["max_retries"]))
            return SimpleNamespace(remote=lambda *arguments: None)

        return SimpleNamespace(options=options)

    monkeypatch.setattr(ray, "remote", remote)
    monkeypatch.setattr(ray, "get", lambda answers: answers)
    monkeypatch.setattr(ray, "wait", lambda answers: (answers[:1], answers[1:]))
    made = spaces.load_sweep("quickstart")
    prepare._make_models(make_plan(made, store), store, lambda line: None)
    state = small.state(store, only=["method=tv,tru"])
    prepare._make_evaluations(state.plan, store, lambda line: None)
    prepare._make_directions(state, store, lambda line: None, "PACK")
    names = {"make_model", "make_evaluation", "make_parts", "make_direction"}
    assert set(asked) == {(name, 3) for name in names}
