"""A machine that goes away does not use up the retries of its trials; what dies on its own does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from platform import losses
from platform.losses import Losses


class Cluster:
    """Machines that come and go, and trials whose processes die on them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.there = {"head", "one", "two"}
        self.said: list[str] = []
        monkeypatch.setattr(losses.time, "monotonic", lambda: self.now)
        self.watch = Losses(lambda: set(self.there), self.said.append)

    def trial(self, name: str) -> Any:
        found = SimpleNamespace(trial_id=name, run_metadata=SimpleNamespace(num_failures=0))
        self.watch.on_trial_start(1, [], found)
        return found

    def die(self, trial: Any) -> None:
        """As Tune counts it."""
        trial.run_metadata.num_failures += 1
        self.watch.on_trial_recover(1, [], trial)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.watch.on_step_end(1, [])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_machine_that_is_gone_by_then(cluster: Cluster) -> None:
    trial = cluster.trial("a")
    cluster.there.remove("one")
    cluster.die(trial)
    assert trial.run_metadata.num_failures == 0
    assert cluster.said == ["a node went away; its trial goes on elsewhere from its last checkpoint"]


def test_machine_whose_end_is_known_later(cluster: Cluster) -> None:
    trial = cluster.trial("a")
    cluster.die(trial)
    cluster.wait(20)
    assert trial.run_metadata.num_failures == 1
    cluster.there.remove("one")
    cluster.wait(1)
    assert trial.run_metadata.num_failures == 1  # looked a second ago
    cluster.wait(losses.EVERY)
    assert trial.run_metadata.num_failures == 0
    cluster.wait(losses.EVERY)
    assert len(cluster.said) == 1


def test_process_that_died_on_its_own(cluster: Cluster) -> None:
    trial = cluster.trial("a")
    cluster.die(trial)
    cluster.wait(losses.LATE + 1)
    cluster.there.remove("one")  # much later: another story
    cluster.wait(losses.EVERY)
    assert (trial.run_metadata.num_failures, cluster.said) == (1, [])


def test_machines_that_were_lost_before_the_trial_began_or_join_do_not_count(cluster: Cluster) -> None:
    cluster.there.remove("one")
    trial = cluster.trial("a")
    cluster.there.add("three")
    cluster.die(trial)
    cluster.wait(losses.EVERY)
    assert trial.run_metadata.num_failures == 1
