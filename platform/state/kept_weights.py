"""Which trials keep their weights (`--keep`): all, the Pareto set of their study, its best or none.

The weights of the others are deleted as soon as a trial's end shows that they are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.benchmarks import selection
from trainables.common.errors import InputError, closest
from trainables.config.settings import Selection
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.storage.names import WEIGHTS

if TYPE_CHECKING:
    from platform.plan.plan import Plan
from platform.state.best_trials import Point, candidates, goal_points, pareto_front, planned_utilities

CHOICES = ("all", "pareto", "best", "none")
"""Each keeps less than the one before. `best` is the trial that the selection rule chooses; `pareto` keeps it, too."""


def check_choice(choice: str) -> None:
    if choice not in CHOICES:
        raise InputError(f"--keep: unknown choice '{choice}'; {closest(choice, CHOICES)}")


@dataclass
class Study:
    """The trials of one study, and which of them have weights on disk.

    `target_utility`: the target model's, to which the selection rule compares a trial's.
    """

    trials: Sequence[Trial]
    store: Storage
    rule: Selection
    target_utility: float | None
    points: dict[str, Point] = field(default_factory=dict)
    candidates: dict[str, selection.Candidate] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    """Trials with weights on disk."""

    def add(self, trial_id: str) -> None:
        """Add the result of a trial, if it has one."""
        results = {trial_id: self.store.result(trial_id) or {}}
        benchmark = self.trials[0].benchmark.name
        self.points |= {point[0]: point for point in goal_points(results, benchmark)}
        self.candidates |= {one.key: one for one in candidates(results, benchmark, self.rule)}
        if self.store.exists(weights_folder(self.store, trial_id)):
            self.kept.add(trial_id)

    def prune(self, choice: str) -> list[str]:
        """Delete the weights of measured trials that `choice` does not keep; return their ids."""
        if choice == "all" or not self.kept:
            return []
        best = selection.pick(self.candidates.values(), self.target_utility, self.rule) if choice != "none" else None
        keep = {best.key} if best else set()
        if choice == "pareto":
            keep |= set(pareto_front(list(self.points.values())))
        dropped = sorted(key for key in self.kept if key in self.points and key not in keep)
        for key in dropped:
            self.store.remove(weights_folder(self.store, key))
        self.kept -= set(dropped)
        return dropped


@dataclass
class Keeper:
    """Reduces the weights of a sweep's studies to `choice` as trials end."""

    studies: Mapping[str, Study]
    store: Storage
    choice: str

    def prune(self, study: str, trial_id: str) -> None:
        """Add a trial that has ended to its study, and drop the weights that are not kept any more."""
        self.studies[study].add(trial_id)
        self.studies[study].prune(self.choice)

    def keep_less(self) -> bool:
        """Keep fewer weights from now on; False if none are kept already."""
        if self.choice == CHOICES[-1]:
            return False
        self.choice = CHOICES[CHOICES.index(self.choice) + 1]
        for study in self.studies.values():
            study.prune(self.choice)
        return True


def make_keeper(plan: Plan, store: Storage, choice: str) -> Keeper:
    """Return the keeper of a plan's studies, which prunes what earlier starts left."""
    utilities, studies = planned_utilities(plan, store), {}
    for name, trials in plan.studies().items():
        utility = utilities.get(trials[0].benchmark.split)
        studies[name] = Study(trials, store, plan.sweep.selection, utility)
        for trial in trials:
            studies[name].add(trial.id())
        studies[name].prune(choice)
    return Keeper(studies, store, choice)


def weights_folder(store: Storage, trial_id: str) -> Path:
    return store.trial(trial_id) / WEIGHTS
