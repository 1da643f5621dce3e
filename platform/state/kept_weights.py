"""Which trials keep their weights (`--keep`); those of the others are deleted as soon as a trial's end shows it."""

from __future__ import annotations

from platform.plan.plan import Plan
from platform.state.trial_outcomes import target_utilities
from trainables.benchmarks import selection
from trainables.config.trial import Trial
from trainables.storage.file_names import EVALUATED, WEIGHTS
from trainables.storage.folder_storage import Storage

KEEP_CHOICES = ("all", "pareto", "best", "none")
"""`best` is the trial that the selection rule chooses; `pareto` keeps it, too."""


class WeightKeeper:
    """Reduces the weights of a sweep's trials to `choice`, of those of earlier starts at once."""

    def __init__(self, plan: Plan, store: Storage, choice: str) -> None:
        self.plan, self.store, self.choice = plan, store, choice
        self.trials = {trial.id(): trial for trial in plan.trials}
        self.utilities = target_utilities(plan, store)
        for study in plan.trials_by_study():
            self.prune(study)

    def prune_after_trial(self, trial: Trial) -> None:
        """Delete the weights that are not kept any more, of a trial's study and of the trial that it goes on from."""
        self.trials[trial.id()] = trial
        self.prune(trial.study())
        if trial.earlier_id:
            self.prune(self.trials[trial.earlier_id].study())

    def prune(self, study: str) -> None:
        """Delete the weights of a study's measured trials that `choice` does not keep."""
        known = [key for key, trial in self.trials.items() if trial.study() == study]
        found = {key for key in known if self.store.has_weights(key)}
        if self.choice == "all" or not found:
            return
        benchmark, rule = self.plan.sweep.benchmark.name, self.plan.sweep.selection
        results = {key: result for key in known if (result := self.store.result(key))}
        points = selection.list_goal_points(results, benchmark)
        keep = set(selection.pareto_front(points)) if self.choice == "pareto" else set()
        candidates = selection.list_candidates(results, benchmark, rule)
        best = selection.pick_candidate(candidates, self.utilities.get(study.split("/")[0]), rule)
        if best and self.choice != "none":
            keep.add(best.key)
        keep |= {  # those that did not end with a model, lost or failed ones, may run again
            trial.earlier_id
            for key, trial in self.trials.items()
            if trial.earlier_id and (self.store.result(key) or {}).get("status") not in EVALUATED
        }
        for key in found & {key for key, *_ in points} - keep:
            self.store.remove(self.store.trial(key) / WEIGHTS)
