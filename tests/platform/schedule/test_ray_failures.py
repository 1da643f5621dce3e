"""A machine that goes away does not use up the retries of its trials; what dies on its own does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.air.execution import FixedResourceManager, ResourceRequest
from ray.air.execution._internal import actor_manager
from ray.air.execution._internal.tracked_actor_task import TrackedActorTask
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.experiment import Trial

from platform.schedule import ray_failures
from platform.schedule.ray_failures import NodeLossWatch


class Cluster:
    """Machines that come and go, and trials whose processes die on them, counted as Tune counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.there = {"head", "one", "two"}
        self.said: list[str] = []
        monkeypatch.setattr(ray_failures.time, "monotonic", lambda: self.now)
        self.watch = NodeLossWatch(lambda: set(self.there), self.said.append)

    def trial(self, name: str) -> Any:
        settings: dict[str, Any] = {"max_failures": ray_failures.TRIES, "config": {"trial": name}, "error_file": None}
        found = SimpleNamespace(trial_id=name, run_metadata=SimpleNamespace(num_failures=0), **settings)
        self.watch.on_trial_start(1, [], found)
        return found

    def die(self, trial: Any) -> bool:
        """As Tune does it, by its own rule; whether the trial runs again."""
        trial.run_metadata.num_failures += 1
        if not Trial.should_recover(trial):
            return False
        self.watch.on_trial_recover(1, [], trial)
        return True

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.watch.on_step_end(1, [])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def counts(cluster: Cluster, trial: Any) -> tuple[int, int]:
    """Return the failures that count for a trial, and how many losses were told of."""
    assert set(cluster.said) <= {"a node went away; its trial goes on elsewhere from its last checkpoint"}
    return trial.run_metadata.num_failures, len(cluster.said)


def test_machine_that_is_gone_by_then(cluster: Cluster) -> None:
    trial = cluster.trial("a")
    cluster.there.remove("one")
    cluster.die(trial)
    assert counts(cluster, trial) == (0, 1)


def test_machine_whose_end_is_known_later(cluster: Cluster) -> None:
    trial = cluster.trial("a")
    cluster.die(trial)
    cluster.wait(20)
    assert counts(cluster, trial) == (1, 0)
    cluster.there.remove("one")
    cluster.wait(1)
    assert counts(cluster, trial) == (1, 0), "looked a second ago"
    for _ in range(2):
        cluster.wait(ray_failures.LOOK_SECONDS)
        assert counts(cluster, trial) == (0, 1)


def test_process_that_died_on_its_own(cluster: Cluster) -> None:
    trial = cluster.trial("a")
    cluster.die(trial)
    cluster.wait(ray_failures.SAME_LOSS_SECONDS + 1)
    cluster.there.remove("one")  # much later: another story
    cluster.wait(ray_failures.LOOK_SECONDS)
    assert counts(cluster, trial) == (1, 0)


def test_machines_that_were_lost_before_the_trial_began_or_join_do_not_count(cluster: Cluster) -> None:
    cluster.there.remove("one")
    trial = cluster.trial("a")
    cluster.there.add("three")
    cluster.die(trial)
    cluster.wait(ray_failures.LOOK_SECONDS)
    assert counts(cluster, trial) == (1, 0)


def test_a_machine_lost_after_a_death_of_its_own(cluster: Cluster) -> None:
    """The trial has used its retry, and goes on all the same, as often as machines go."""
    trial = cluster.trial("a")
    assert cluster.die(trial)
    for name in ("one", "two"):
        cluster.wait(ray_failures.SAME_LOSS_SECONDS + ray_failures.LOOK_SECONDS)
        cluster.there.remove(name)
        assert cluster.die(trial)
        assert "lost" not in trial.config
    assert counts(cluster, trial) == (1, 2)


def test_two_deaths_of_its_own_are_the_end(cluster: Cluster) -> None:
    """Tune starts the trial once more, to be told what it died of; should that die, too, Tune gives up itself."""
    trial = cluster.trial("a")
    assert cluster.die(trial)
    assert "lost" not in trial.config
    cluster.wait(ray_failures.SAME_LOSS_SECONDS + ray_failures.LOOK_SECONDS)
    assert cluster.die(trial)
    assert trial.config == {"trial": "a", "lost": "its process died"}
    assert not cluster.die(trial)


@pytest.mark.parametrize(("rounds", "expected"), [(6, (0, 1)), (30, (1, 0))], ids=["just before", "long before"])
def test_machine_that_was_gone_before_the_death(cluster: Cluster, rounds: int, expected: tuple[int, int]) -> None:
    """Ray reports a death late; but an autoscaler ends idle machines all the time, which excuses no later death."""
    trial = cluster.trial("a")
    cluster.wait(600)
    cluster.there.remove("two")
    for _ in range(rounds):
        cluster.wait(ray_failures.LOOK_SECONDS)
    cluster.die(trial)
    cluster.wait(ray_failures.LOOK_SECONDS)
    assert counts(cluster, trial) == expected


def test_a_kill_by_the_memory_monitor_is_an_actors_death_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tune (Ray 2.60) would end the sweep with a traceback: it knows errors of actors and of tasks alone."""
    monkeypatch.setattr(actor_manager, "RayActorError", RayActorError)  # it is put back afterwards
    ray_failures.survive_memory_kills()
    manager, ended = actor_manager.RayActorManager(FixedResourceManager()), []
    actor = manager.add_actor(object, {}, ResourceRequest([{"CPU": 1}]), on_error=lambda _, error: ended.append(error))
    monkeypatch.setattr(manager, "_cleanup_actor", lambda **actor: None)  # it was never started
    killed = OutOfMemoryError("1 worker(s) were killed due to the node running low on memory")
    manager._actor_task_failed(TrackedActorTask(actor), killed)
    assert ended == [killed]
    file = tmp_path / "error.txt"
    file.write_text(f"{killed}. Memory on the node (IP: 127.0.0.1) was 22.50GB used / 23.54GB limit (0.95)\nfurther\n")
    cause: Any = SimpleNamespace(error_file=str(file))
    last = ray_failures.read_cause(cause).splitlines()[-1]
    assert last == "killed: machine short of memory (22.50 of 23.54 GB); try --max-concurrent 1"
