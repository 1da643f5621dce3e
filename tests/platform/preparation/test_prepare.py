"""How often what trials share is asked of Ray again where machines are lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from platform.plan.build import make_plan
from platform.preparation import prepare
from search_spaces.schema import sweep as spaces
from tests.support.small_sweep import Small
from trainables.storage.base import Storage


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
    assert set(asked) == {(name, 3) for name in ("make_model", "make_evaluation", "make_direction")}
