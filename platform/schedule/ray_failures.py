"""Watches for lost machines: a trial that goes down with its machine runs again, and that does not use up its retry."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.air.execution._internal import actor_manager
from ray.exceptions import OutOfMemoryError, RayActorError, RayError
from ray.tune import Callback

RETRIES = 1
"""How often a trial whose process died on its own runs again, from its last checkpoint."""
TRIES = RETRIES + 1
"""Tune's own limit: one more, because Tune decides before it asks us. A trial that uses it is recorded as lost."""
LOOK_SECONDS = 5.0
"""Time between two looks at which machines exist."""
SAME_LOSS_SECONDS = 90.0
"""A trial and its machine that die within this time of each other are one loss; Ray takes half a minute to find out."""


class StatelessCallback(Callback):
    """A callback of which Tune saves nothing, because its state is never read again."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class RayletWatch(StatelessCallback):
    """Raises RayError out of Tune's loop if Ray's process here has died: Tune would wait for its trials for ever."""

    def __init__(self) -> None:
        self.node = ray.get_runtime_context().get_node_id()
        self.last_look = time.monotonic()

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if time.monotonic() - self.last_look < LOOK_SECONDS:
            return
        self.last_look = time.monotonic()
        if not any(node["Alive"] for node in ray.nodes() if node["NodeID"] == self.node):
            raise RayError("its raylet on this machine has died")


class NodeLossWatch(StatelessCallback):
    """Gives a trial back the retry that the loss of its machine took; Tune itself does so for announced losses alone.

    `list_nodes`: the ids of the machines that answer now. Ray would say half a minute later, and by then the next
    machine may be lost and take the retry of the same trial again.
    """

    def __init__(self, list_nodes: Callable[[], set[str]], print_line: Callable[[str], None]) -> None:
        self.list_nodes = list_nodes
        self.print_line = print_line
        self.started: dict[str, float] = {}
        self.looks: deque[tuple[float, frozenset[str]]] = deque()
        """When we looked, and the machines that existed then."""
        self.deaths: list[tuple[Any, frozenset[str], float]] = []
        """Trials whose process died, the machines that existed shortly before, and when they died."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._look()
        self.started[trial.trial_id] = time.monotonic()

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        since = self.started.get(trial.trial_id, 0.0)
        before = [nodes for at, nodes in self.looks if at >= since] or [self.looks[-1][1]]
        self.deaths.append((trial, frozenset().union(*before), time.monotonic()))
        self._look()
        if trial.run_metadata.num_failures > RETRIES:
            trial.config = {**trial.config, "lost": read_cause(trial)}

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if not self.looks or time.monotonic() - self.looks[-1][0] >= LOOK_SECONDS:
            self._look()

    def _look(self) -> None:
        now, nodes = time.monotonic(), frozenset(self.list_nodes())
        while self.looks and now - self.looks[0][0] > SAME_LOSS_SECONDS:
            self.looks.popleft()
        self.looks.append((now, nodes))
        left = []
        for trial, before, died in self.deaths:
            if not before <= nodes:
                metadata = trial.run_metadata
                metadata.num_failures = max(0, metadata.num_failures - 1)
                self.print_line("a node went away; its trial goes on elsewhere from its last checkpoint")
            elif now - died < SAME_LOSS_SECONDS:
                left.append((trial, before, died))
        self.deaths = left


def read_cause(trial: Any) -> str:
    """Return what Tune has noted of a trial's end in Ray's session, which is not in the storage: it may be full."""
    path = trial.error_file
    text = Path(path).read_text(encoding="utf-8") if path and Path(path).is_file() else "its process died"
    if used := re.search(r"low on memory.* was ([\d.]+)GB used / ([\d.]+)GB", text):
        text += f"\nkilled: machine short of memory ({used[1]} of {used[2]} GB); try --max-concurrent 1"
    return text


def survive_memory_kills() -> None:
    """Make Tune treat a kill by Ray's memory monitor like a dead actor: Tune of Ray 2.60 ends with a traceback."""
    actor_manager.RayActorError = (RayActorError, OutOfMemoryError)  # type: ignore[assignment, misc]
