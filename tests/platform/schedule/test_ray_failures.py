"""How often a trial runs again whose process or machine dies, and what is told of its end."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.air.execution import FixedResourceManager, ResourceRequest
from ray.air.execution._internal import actor_manager
from ray.air.execution._internal.tracked_actor_task import TrackedActorTask
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.experiment import Trial

from platform.schedule import ray_session


@pytest.mark.parametrize(
    ("steps", "ended"),
    [([10, 20, 30, 40, 50, 60, 70], None), ([10, 10, 10, 10], 2), ([0, 0, 0], 2), ([10, 9, 30, 20, 25, 70], 4)],
    ids=["further each time", "at the same step", "at its start", "further once"],
)
def test_a_trial_goes_on_as_long_as_it_comes_further(steps: list[int], ended: int | None) -> None:
    """By Tune's own rule, at deaths after these steps: two that come no further are excused, the third one is not."""
    metadata = SimpleNamespace(num_failures=0)
    trial: Any = SimpleNamespace(
        trial_id="a", run_metadata=metadata, max_failures=ray_session.MAX_RESTARTS_WITHOUT_PROGRESS
    )
    reset, last = ray_session.RayFailureCallback(), None
    for number, step in enumerate(steps):
        for seen in range(0, step + 1, 5):
            reset.on_trial_result(1, [], trial, {"step": seen})
        reset.on_trial_result(1, [], trial, {"phase": "waiting"})
        metadata.num_failures += 1
        if not Trial.should_recover(trial):
            last = number
            break
    assert last == ended


def test_a_kill_by_the_memory_monitor_is_an_actors_death_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tune (Ray 2.60) would end the sweep with a traceback: it knows errors of actors and of tasks alone."""
    monkeypatch.setattr(actor_manager, "RayActorError", RayActorError)  # it is put back afterwards
    ray_session.make_tune_retry_memory_kills()
    manager, ended = actor_manager.RayActorManager(FixedResourceManager()), []
    actor = manager.add_actor(object, {}, ResourceRequest([{"CPU": 1}]), on_error=lambda _, error: ended.append(error))
    monkeypatch.setattr(manager, "_cleanup_actor", lambda **actor: None)  # it was never started
    killed = OutOfMemoryError("1 worker(s) were killed due to the node running low on memory")
    manager._actor_task_failed(TrackedActorTask(actor), killed)
    assert ended == [killed]
    file = tmp_path / "error.txt"
    file.write_text(f"{killed}. Memory on the node (IP: 127.0.0.1) was 22.50GB used / 23.54GB limit (0.95)\nfurther\n")
    cause: Any = SimpleNamespace(error_file=str(file))
    last = ray_session.read_trial_error(cause).splitlines()[-1]
    assert last == "killed: machine short of memory (22.50 of 23.54 GB); try --max-concurrent 1"
