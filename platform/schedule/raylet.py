"""Ends a run where Ray's own process on this machine has died: Tune would wait for its trials without end."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.exceptions import RayError
from ray.tune import Callback

EVERY = 5.0
"""Seconds between two looks. Ray itself takes about half a minute to find out."""


class RayletDied(RayError):
    """Ray cannot go on."""


class RayletWatch(Callback):
    """Raises RayletDied out of Tune's loop."""

    def __init__(self) -> None:
        self.node = ray.get_runtime_context().get_node_id()
        self.looked = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        """Nothing, as of progress.Reporter."""
        return {}

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if time.monotonic() - self.looked < EVERY:
            return
        self.looked = time.monotonic()
        if not any(node["Alive"] for node in ray.nodes() if node["NodeID"] == self.node):
            raise RayletDied("its raylet on this machine has died")
