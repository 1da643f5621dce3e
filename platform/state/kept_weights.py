"""Which trials keep their weights (`--keep`): all, the Pareto set of their study, its best or none.

The weights of the others are deleted as soon as a trial's end shows that they are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from platform.plan.plan import Plan
from platform.state.trial_outcomes import planned_utilities
from trainables.benchmarks import selection
from trainables.config.settings import Selection
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.storage.names import EVALUATED, WEIGHTS

CHOICES = ("all", "pareto", "best", "none")
"""`best` is the trial that the selection rule chooses; `pareto` keeps it, too."""


@dataclass
class Keeper:
    """Reduces the weights of a sweep's trials to `choice` as trials end."""

    store: Storage
    choice: str
    benchmark: str
    rule: Selection
    utilities: Mapping[str, float | None]
    """The target model's by split, to which the rule compares a trial's."""
    studies: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """What trials that have ended are chosen by, by study and id."""
    with_weights: dict[str, set[str]] = field(default_factory=dict)
    """Ids of those with weights, by study: each trial is looked up once, when it is added."""
    followers: dict[str, str] = field(default_factory=dict)
    """By the id of a trial the one that goes on from its model, which stays until that one has a model, too."""

    def add_trial(self, trial: Trial, result: Mapping[str, Any] | None) -> None:
        """Add the result of a trial, if it has one."""
        if result is not None:
            known = {name: result.get(name) for name in ("status", "metrics", "halves")}
            known["config"] = {"seed": trial.seed}
            self.studies.setdefault(trial.study(), {})[trial.id()] = known
            if self.store.has_weights(trial.id()):
                self.with_weights.setdefault(trial.study(), set()).add(trial.id())

    def trial_ended(self, trial: Trial, result: Mapping[str, Any] | None) -> None:
        """Add a trial, and drop the weights that are not kept any more, of its study and of the trial it follows."""
        self.add_trial(trial, result)
        for study, ended in self.studies.items():
            if study == trial.study() or trial.follows in ended:
                self.prune(study)

    def prune(self, study: str) -> None:
        """Delete the weights of a study's measured trials that `choice` does not keep."""
        results, found = self.studies.get(study, {}), self.with_weights.get(study, set())
        if self.choice == "all" or not found:
            return
        points = selection.goal_points(results, self.benchmark)
        keep = set(selection.pareto_front(points)) if self.choice == "pareto" else set()
        candidates = selection.candidates(results, self.benchmark, self.rule)
        best = selection.pick(candidates, self.utilities.get(study.split("/")[0]), self.rule)
        if best and self.choice != "none":
            keep.add(best.key)
        keep |= {key for key in found if key in self.followers and not self._has_model(self.followers[key])}
        for key in found & {key for key, *_ in points} - keep:
            self.store.remove(self.store.trial(key) / WEIGHTS)
            found.remove(key)

    def _has_model(self, trial_id: str) -> bool:
        """Return whether a trial was evaluated. One that was not may run again: it was lost, or failed."""
        return (self.store.result(trial_id) or {}).get("status") in EVALUATED


def make_keeper(plan: Plan, store: Storage, choice: str) -> Keeper:
    """Return the keeper of a plan's trials, which prunes what earlier starts left."""
    sweep = plan.sweep
    keeper = Keeper(store, choice, sweep.benchmark.name, sweep.selection, planned_utilities(plan, store))
    keeper.followers = {trial.follows: trial.id() for trial in plan.trials if trial.follows}
    for trial in plan.trials:
        keeper.add_trial(trial, store.result(trial.id()))
    for study in keeper.studies:
        keeper.prune(study)
    return keeper
