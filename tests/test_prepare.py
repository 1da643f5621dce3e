"""How what trials share is asked of Ray: where ranks lie."""

from __future__ import annotations

from typing import Any

import pytest
from small_sweep import Small

import platform.driver as driver
import platform.hub as hub
import platform.prepare as prepare
from platform.gate import Gate, Limits
from platform.session import Room
from trainables import workers
from trainables.storage import Storage


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

    monkeypatch.setattr(workers, "launch_direction", launch)
    monkeypatch.setattr(hub, "fetch", lambda *arguments: None)
    for step in ("data", "_models", "_evaluations", "_warn"):
        monkeypatch.setattr(prepare, step, lambda *arguments: None)
    plan = small.plan(store, "resources.ranks=2", only=["method=tv"])
    with pytest.raises(Asked):
        driver._all(plan, store, "", Gate(Limits()), Room(1, strategy, lambda: None), "none")
    assert placed == [(2, strategy)]
