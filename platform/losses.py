"""Machines that go away: a trial that was lost with one has not failed, and keeps its own retries."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ray.tune import Callback

RETRIES = 1
"""How often a trial whose process died runs again, from its last checkpoint."""
EVERY, LATE = 5.0, 90.0
"""Seconds between two looks, and after a trial's death until its machine counts as alive: of a machine that is
switched off one learns the processes' end first."""


@dataclass(frozen=True)
class Death:
    """A trial whose process died, the machines that were there when it began, and when it died."""

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
        self.begun: dict[str, frozenset[str]] = {}
        self.deaths: list[Death] = []
        self.looked = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Nothing, as of progress.Reporter."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.begun[trial.trial_id] = frozenset(self.nodes())

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        before = self.begun.get(trial.trial_id, frozenset())
        self.deaths.append(Death(trial, before, time.monotonic()))
        self._look()

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.deaths and time.monotonic() - self.looked >= EVERY:
            self._look()

    def _look(self) -> None:
        self.looked, now = time.monotonic(), self.nodes()
        left = []
        for death in self.deaths:
            if not death.before <= now:
                metadata = death.trial.run_metadata
                metadata.num_failures = max(0, metadata.num_failures - 1)
                self.say("a node went away; its trial goes on elsewhere from its last checkpoint")
            elif self.looked - death.at < LATE:
                left.append(death)
        self.deaths = left
