"""What happens to trials whose process or machine dies: how often they run again, and what ended them."""

import re
import time
from pathlib import Path
from typing import Any

import ray
from ray.air.execution._internal import actor_manager
from ray.exceptions import OutOfMemoryError, RayActorError, RayError
from ray.tune import Callback

MAX_TRIAL_RESTARTS = 2
"""How often a trial whose process died runs again, from its last checkpoint, without coming further."""
RAYLET_CHECK_SECONDS = 5.0


class UnsavedCallback(Callback):
    """A callback of which Tune saves nothing, because its state is never read again."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class RayletWatch(UnsavedCallback):
    """Raises RayError out of Tune's loop if Ray's process here has died: Tune would wait for its trials for ever.

    Counts a trial's failures anew when it comes further than ever: one that dies at the same step is given up.
    """

    def __init__(self) -> None:
        self.node = ray.get_runtime_context().get_node_id()
        self.last_look = time.monotonic()
        self.furthest: dict[str, int] = {}

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if time.monotonic() - self.last_look < RAYLET_CHECK_SECONDS:
            return
        self.last_look = time.monotonic()
        if not any(node["Alive"] for node in ray.nodes() if node["NodeID"] == self.node):
            raise RayError("its raylet on this machine has died")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        step = result.get("step", 0)
        if step > self.furthest.get(trial.trial_id, 0):
            self.furthest[trial.trial_id] = step
            trial.run_metadata.num_failures = 0


def read_tune_error(trial: Any) -> str:
    """Return what Tune has noted of a trial's end in Ray's session, which is not in the storage: it may be full."""
    path = trial.error_file
    text = Path(path).read_text(encoding="utf-8") if path and Path(path).is_file() else "its process died"
    if used := re.search(r"low on memory.* was ([\d.]+)GB used / ([\d.]+)GB", text):
        text += f"\nkilled: machine short of memory ({used[1]} of {used[2]} GB); try --max-concurrent 1"
    return text


def retry_trials_killed_for_memory() -> None:
    """Make Tune treat a kill by Ray's memory monitor like a dead actor: Tune of Ray 2.60 ends with a traceback."""
    actor_manager.RayActorError = (RayActorError, OutOfMemoryError)  # type: ignore[assignment, misc]
