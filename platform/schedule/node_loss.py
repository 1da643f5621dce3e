"""Machines that go away: a trial that was lost with one has not failed, and keeps its own retries."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.tune import Callback

RETRIES = 1
"""How often a trial whose process died on its own runs again, from its last checkpoint."""
TRIES = RETRIES + 1
"""Tune's own limit: one more, because Tune decides before it asks us. A trial that uses it is told that it is lost."""
EVERY, LATE = 5.0, 90.0
"""Seconds between two looks, and between a trial's death and its machine's, in either order, as they become known."""


@dataclass(frozen=True)
class Death:
    """A trial whose process died, the machines that were there shortly before, and when it died."""

    trial: Any
    before: frozenset[str]
    at: float


class Losses(Callback):
    """Gives a trial back the retry that the loss of a machine took; Tune itself knows only announced losses.

    `nodes`: the ids of the machines that are there now. A machine may go right after another: what one took has to be
    given back before the next takes its own, so they are asked themselves (Ray learns of a loss half a minute later).
    """

    def __init__(self, nodes: Callable[[], set[str]], say: Callable[[str], None]) -> None:
        self.nodes = nodes
        self.say = say
        self.begun: dict[str, float] = {}
        self.looks: deque[tuple[float, frozenset[str]]] = deque()
        self.deaths: list[Death] = []

    def __getstate__(self) -> dict[str, Any]:
        """Nothing, as of progress.Reporter."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._look()
        self.begun[trial.trial_id] = time.monotonic()

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        since = self.begun.get(trial.trial_id, 0.0)
        before = [there for at, there in self.looks if at >= since] or [self.looks[-1][1]]
        self.deaths.append(Death(trial, frozenset().union(*before), time.monotonic()))
        self._look()
        if trial.run_metadata.num_failures > RETRIES:
            trial.config = {**trial.config, "lost": noted(trial)}

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if not self.looks or time.monotonic() - self.looks[-1][0] >= EVERY:
            self._look()

    def _look(self) -> None:
        now, there = time.monotonic(), frozenset(self.nodes())
        while self.looks and now - self.looks[0][0] > LATE:
            self.looks.popleft()
        self.looks.append((now, there))
        left = []
        for death in self.deaths:
            if not death.before <= there:
                metadata = death.trial.run_metadata
                metadata.num_failures = max(0, metadata.num_failures - 1)
                self.say("a node went away; its trial goes on elsewhere from its last checkpoint")
            elif now - death.at < LATE:
                left.append(death)
        self.deaths = left


def noted(trial: Any) -> str:
    """What Tune has noted of a trial's end in Ray's session, which is not in the storage: that disk may be full."""
    path = trial.error_file
    return Path(path).read_text(encoding="utf-8") if path and Path(path).is_file() else "its process died"
