"""The order of trials: a fixed queue, or Optuna's proposals by one Searcher of Tune over all studies of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import optuna
from ray.tune.search import Searcher

from platform.plan.space import Space
from platform.schedule.dashboard_journal import Goals, read_goals
from platform.schedule.parameters import Parameters
from platform.schedule.samplers import SAMPLERS, silence_optuna
from search_spaces.schema.sweep import Search
from trainables import benchmarks
from trainables.common.errors import InputError
from trainables.config.trial import Trial
from trainables.trial.search_stop_rule import History, StopRule, make_stop_rule

FAIL = optuna.trial.TrialState.FAIL
DEFAULT = Search()
FLOOR = "floor"
"""The name of the constraint that a trial keeps enough utility."""
TRIES = 200
"""Proposals in a row that were tried before, after which a space with ranges is taken to be searched."""
Reason = Callable[[], str | None]
"""Returns why no further trial may begin, None if one may."""


class Queue(Searcher):
    """Suggests every trial exactly once, in order; one that goes on from another trial's model when that has ended.

    `has_model`: whether a trial that ended has left a model. Where it has not, those that go on from it are left out.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        shared: dict[str, Any],
        stop_reason: Reason = lambda: None,
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
            if trial.follows in self.unfinished:
                continue
            self.waiting.remove(trial)
            if trial.follows is None or self.has_model(trial.follows):
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


class Study:
    """One Optuna study of one study of the sweep: every goal's gain maximised, no point twice.

    Where Optuna proposes a point of a grid again, the nearest one is taken that was not asked before; of a space with
    ranges it is asked again. First come the points that an earlier start left `unfinished`, in their order, and the
    published one. `known`: it and the trials of a grid, or of a space with ranges those that were run.
    `floor`: the utility below which a trial counts as infeasible (Optuna's constraints). `histories`: what finished
    trials measured at each step, for the stop rule of trials to come.
    """

    def __init__(
        self,
        space: Space,
        known: Sequence[Trial],
        budget: int,
        finished: Mapping[str, Goals],
        unfinished: Container[str] = (),
        *,
        search: Search = DEFAULT,
        floor: float | None = None,
        histories: Mapping[str, History] = MappingProxyType({}),
    ) -> None:
        self.space, self.budget, self.search, self.floor = space, budget, search, floor
        self.published = known[0].id()
        self.trials = {trial.id(): trial for trial in known}
        self.histories = [histories[key] for key in self.trials if key in histories]
        self.parameters = Parameters(space)
        self.places = {key: self.parameters.encode(trial) for key, trial in self.trials.items()}
        self.running: dict[str, optuna.Trial] = {}
        self.asked = {key for key in self.trials if key in finished}
        goals = benchmarks.choose_goals(known[0].benchmark, search.goals)
        silence_optuna()
        sampler = SAMPLERS[search.sampler](known[0].seed + len(self.asked), budget)
        self.study = optuna.create_study(directions=["maximize" for _ in goals], sampler=sampler)
        for key in filter(finished.__contains__, self.trials):
            self._add(key, finished[key])
        first = [key for key in self.trials if key in unfinished] + [self.published]
        self.first = [key for key in dict.fromkeys(first) if key not in self.asked]

    @property
    def left(self) -> int:
        return max(0, self.budget - len(self.asked))

    def ask(self) -> Trial | None:
        """Return the next trial, None if Optuna proposes none that was not asked before."""
        if self.first:
            key = self.first.pop(0)
            proposed = self._enqueue(key)
        else:
            found = self._search() if self.space.has_ranges else self._search_grid()
            if found is None:
                self.budget = len(self.asked)
                return None
            key, proposed = found
        self.asked.add(key)
        self.running[key] = proposed
        return self.trials[key]

    def make_stop_rule(self, key: str) -> StopRule | None:
        """Return what may end a trial that begins now; None: nothing, as for the published point always."""
        enough = self.search.stop_dominated
        if enough is None or key == self.published:
            return None
        return make_stop_rule(self.histories, enough, self.floor)

    def tell(self, key: str, goals: Goals, history: History = ()) -> None:
        """Take the outcome of a point that was asked; None: it failed or diverged."""
        self.histories.append(history)
        self._finish(self.running.pop(key), goals)

    def _finish(self, proposed: optuna.Trial, goals: Goals | None) -> None:
        if goals is not None and self.floor is not None:
            proposed.set_constraint(FLOOR, self.floor - goals[-1])
        self.study.tell(proposed, goals, state=FAIL if goals is None else None)

    def _add(self, key: str, goals: Goals) -> None:
        """Add a trial of an earlier start."""
        if isinstance(self.study.sampler, optuna.samplers.BaseGASampler):  # it skips those without a generation
            self._finish(self._enqueue(key), goals)
            return
        known: dict[str, Any] = {"params": self.places[key], "distributions": self.parameters.distributions}
        if goals is None:
            known["state"] = FAIL
        else:
            known |= {"values": list(goals)}
            known |= {"constraints": {FLOOR: self.floor - goals[-1]}} if self.floor is not None else {}
        self.study.add_trial(optuna.trial.create_trial(**known))

    def _enqueue(self, key: str) -> optuna.Trial:
        """Return Optuna's trial of a point that was chosen here."""
        self.study.enqueue_trial(self.places[key])
        return self.study.ask(self.parameters.distributions)

    def _search(self) -> tuple[str, optuna.Trial] | None:
        """Return what Optuna proposes in a space with ranges, None where nothing is new in TRIES proposals."""
        for _ in range(TRIES):
            proposed = self.study.ask(self.parameters.distributions)
            try:
                trial = self.space.make(self.parameters.decode(proposed.params))
            except InputError:  # settings that exclude each other
                trial = None
            if trial is not None and trial.id() not in self.asked:
                self.trials[trial.id()], self.places[trial.id()] = trial, proposed.params
                return trial.id(), proposed
            self.study.tell(proposed, state=FAIL)
        return None

    def _search_grid(self) -> tuple[str, optuna.Trial]:
        """Return Optuna's proposal, or the nearest point that was not asked before: the first one of several."""
        proposed = self.study.ask(self.parameters.distributions)
        params = proposed.params
        left = (key for key in self.trials if key not in self.asked)
        key = min(left, key=lambda key: sum(_count_steps(self.places[key][path], params[path]) for path in params))
        if self.places[key] != params:
            self.study.tell(proposed, state=FAIL)
            proposed = self._enqueue(key)
        return key, proposed


def _count_steps(one: Any, other: Any) -> int:
    """Return how many values of an axis lie between two places; of words 1 between any two."""
    return int(one != other) if isinstance(one, str) else abs(one - other)


class Studies(Queue):
    """All studies of a sweep take turns, so that no study's tail leaves the cluster idle.

    `begin` is called before a trial is given away, `end` with its goals.
    """

    def __init__(
        self,
        studies: Iterable[Study],
        shared: dict[str, Any],
        stop_reason: Reason = lambda: None,
        begin: Callable[[Trial], None] = lambda trial: None,
        end: Callable[[Trial, Goals], None] = lambda trial, goals: None,
    ) -> None:
        super().__init__([], shared, stop_reason)
        self.studies = list(studies)
        self.begin, self.end = begin, end
        self.owner: dict[str, tuple[Study, str]] = {}

    @property
    def left(self) -> int:
        return sum(study.left for study in self.studies)

    def next_trial(self, trial_id: str) -> Trial | None:
        while open_studies := [study for study in self.studies if study.left]:
            study = min(open_studies, key=lambda candidate: len(candidate.asked) / candidate.budget)
            trial = study.ask()
            if trial is not None:
                self.owner[trial_id] = (study, trial.id())
                self.begin(trial)
                return trial
        return None

    def suggest(self, trial_id: str) -> Any:
        """Return a trial as the queue does, with what may end it early."""
        proposal = super().suggest(trial_id)
        if proposal is not Searcher.FINISHED:
            study, key = self.owner[trial_id]
            rule = study.make_stop_rule(key)
            proposal["stop_rule"] = rule and rule.model_dump(mode="json")
        return proposal

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        study, key = self.owner.pop(trial_id)
        found = result or {}
        document = {"metrics": found, "halves": found.get("halves")}
        trial = study.trials[key]
        study.tell(key, None if error else read_goals(trial, document, study.search.goals), found.get("history", ()))
        self.end(trial, None if error else read_goals(trial, document))
