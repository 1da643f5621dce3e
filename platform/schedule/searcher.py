"""The order of trials: a fixed queue, or Optuna's proposals by one Searcher of Tune over all studies of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ray.tune.search import Searcher

from platform.schedule.study import Study, read_goal_values
from trainables.config.trial import Trial


class TrialQueue(Searcher):
    """Suggests every trial once, in order; one that goes on from another's model when that has ended with one."""

    def __init__(
        self,
        trials: Sequence[Trial],
        shared: dict[str, Any],
        stop_reason: Callable[[], str | None] = lambda: None,
        has_model: Callable[[str], bool] = lambda key: True,
    ) -> None:
        super().__init__()
        self.waiting = list(trials)
        self.shared = shared
        self.stop_reason = stop_reason
        self.has_model = has_model
        self.unfinished = {trial.id() for trial in trials}
        self.given: dict[str, str] = {}

    def next_trial(self, trial_id: str) -> Trial | None:
        """Return the trial that Tune will call `trial_id`, None if none is left or none may begin yet."""
        for trial in list(self.waiting):
            if trial.earlier_id in self.unfinished:
                continue
            self.waiting.remove(trial)
            if trial.earlier_id is None or self.has_model(trial.earlier_id):
                self.given[trial_id] = trial.id()
                return trial
            self.unfinished.remove(trial.id())
        return None

    def suggest(self, trial_id: str) -> Any:
        """Return a trial as one text without defaults, because Tune keeps several copies of each value; None: wait."""
        stopped = self.stop_reason()
        trial = None if stopped else self.next_trial(trial_id)
        if trial is None:
            return None if self.waiting and not stopped else Searcher.FINISHED
        return {"trial": trial.model_dump_json(exclude_defaults=True), **self.shared}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Let trials begin that go on from this one's model."""
        self.unfinished.remove(self.given.pop(trial_id))

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the storage holds what is done."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the storage holds what is done."""


class StudyQueue(TrialQueue):
    """All studies of a sweep take turns, so that none leaves the cluster idle. `begin`: called before each trial."""

    def __init__(
        self,
        studies: Iterable[Study],
        shared: dict[str, Any],
        stop_reason: Callable[[], str | None] = lambda: None,
        begin: Callable[[Trial], None] = lambda trial: None,
    ) -> None:
        super().__init__([], shared, stop_reason)
        self.studies = list(studies)
        self.begin = begin
        self.owner: dict[str, tuple[Study, str]] = {}

    @property
    def remaining(self) -> int:
        return sum(study.remaining for study in self.studies)

    def next_trial(self, trial_id: str) -> Trial | None:
        while open_studies := [study for study in self.studies if study.remaining]:
            study = min(open_studies, key=lambda candidate: len(candidate.asked) / candidate.budget)
            trial = study.ask()
            if trial is not None:
                self.owner[trial_id] = (study, trial.id())
                self.begin(trial)
                return trial
        return None

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        study, key = self.owner.pop(trial_id)
        found = result or {}
        document = {"metrics": found, "halves": found.get("halves")}
        goals = None if error else read_goal_values(study.trials[key], document, study.search.goals)
        study.tell(key, goals)
