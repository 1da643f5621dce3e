"""Which trial comes next: a fixed queue, or Optuna's proposals; one Searcher of Tune over all studies of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import optuna
from ray.tune.search import Searcher

from trainables import benchmarks
from trainables.config.trial import Trial

CHOICES = ("gamma", "tau", "strength", "seed")
Values = tuple[float, ...] | None
"""The benchmark's goals in a trial, on TOFU FQ and MU, turned so that more is better; None: it has no numbers."""

Closed = Callable[[], str | None]
"""Why no further trial may begin."""


def dump_trial(trial: Trial) -> str:
    """Return a trial as Tune gets it: one text without defaults, because Tune keeps several copies of each value."""
    return trial.model_dump_json(exclude_defaults=True)


class Queue(Searcher):
    """Every trial exactly once, in order."""

    def __init__(self, trials: Sequence[Trial], shared: dict[str, Any], closed: Closed = lambda: None) -> None:
        super().__init__()
        self.waiting = list(trials)
        self.shared = shared
        self.closed = closed

    def suggest(self, trial_id: str) -> Any:
        if not self.waiting or self.closed():
            return Searcher.FINISHED
        return {"trial": dump_trial(self.waiting.pop(0)), **self.shared}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Learn nothing: the queue is fixed."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: what is done stands in the storage."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: what is done stands in the storage."""


class Study:
    """One Optuna study over the points of one study of the sweep: every goal's gain maximised, no point twice.

    Its parameters are gamma, tau, a task vector's strength and the seed, each a choice among the grid's values. Where
    Optuna proposes a point again, the one of those left that is nearest to it on the grid is taken. Points that an
    earlier start began (`begun`) and did not end are asked first, in their order.
    """

    def __init__(
        self,
        points: Sequence[Trial],
        budget: int | None,
        finished: Mapping[str, Values],
        begun: Container[str] = (),
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.points = {trial.id(): trial for trial in points}
        self.budget = min(budget or len(points), len(points))
        self.asked: set[str] = set()
        self.running: dict[str, optuna.Trial] = {}
        self.order = {name: sorted({_choices(t)[name] for t in points}, key=_position) for name in CHOICES}
        self.distributions = {n: optuna.distributions.CategoricalDistribution(v) for n, v in self.order.items()}
        sampler = optuna.samplers.TPESampler(seed=points[0].seed, n_startup_trials=5)
        self.benchmark = points[0].benchmark.name
        goals = benchmarks.find(self.benchmark).GOALS
        self.study = optuna.create_study(directions=["maximize" for _ in goals], sampler=sampler)
        for key in filter(finished.__contains__, self.points):
            self.learn(key, finished[key])
        self.first = [key for key in self.points if key in begun and key not in self.asked]
        published = points[0].id()
        if not self.asked and published not in self.first:
            self.first.append(published)

    @property
    def exhausted(self) -> bool:
        return len(self.asked) >= self.budget

    def learn(self, key: str, values: Values) -> None:
        """Take a trial that was finished before this study began."""
        self.asked.add(key)
        self.study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.FAIL if values is None else optuna.trial.TrialState.COMPLETE,
                params=_choices(self.points[key]),
                distributions=dict(self.distributions),
                values=None if values is None else list(values),
            )
        )

    def ask(self) -> Trial:
        """Return a point that comes first, else Optuna's proposal or the nearest point that was not asked before."""
        if self.first:
            key = self.first.pop(0)
            proposed = self._enqueue(key)
        else:
            proposed = self.study.ask(dict(self.distributions))
            key = self._nearest(proposed.params)
            if _choices(self.points[key]) != proposed.params:
                self.study.tell(proposed, state=optuna.trial.TrialState.FAIL)
                proposed = self._enqueue(key)
        self.asked.add(key)
        self.running[key] = proposed
        return self.points[key]

    def _enqueue(self, key: str) -> optuna.Trial:
        """Return Optuna's trial of a point that was chosen here."""
        self.study.enqueue_trial(_choices(self.points[key]))
        return self.study.ask(dict(self.distributions))

    def _nearest(self, params: dict[str, str]) -> str:
        """Return the id of the point left that is fewest grid steps from `params`, the first one of several."""

        def steps(key: str) -> int:
            mine = _choices(self.points[key])
            return sum(abs(self.order[name].index(mine[name]) - self.order[name].index(params[name])) for name in mine)

        return min((key for key in self.points if key not in self.asked), key=steps)

    def tell(self, key: str, values: Values) -> None:
        """Take the outcome of a point; None: it failed or diverged."""
        proposed = self.running.pop(key, None)
        if proposed is None:
            return
        if values is None:
            self.study.tell(proposed, state=optuna.trial.TrialState.FAIL)
        else:
            self.study.tell(proposed, list(values))


def _choices(trial: Trial) -> dict[str, str]:
    """Return a point as Optuna's parameters, as text so that `none` is a choice among numbers."""
    vector = trial.task_vector
    strength = None if vector is None else vector.stg or vector.strength
    values = (trial.rectifier.gamma, trial.rectifier.tau, strength, trial.seed)
    return {name: "none" if value is None else f"{value:g}" for name, value in zip(CHOICES, values, strict=True)}


def _position(choice: str) -> float:
    """Sort numbers by size, none (no average, no clipping) last."""
    return float("inf") if choice == "none" else float(choice)


class Studies(Queue):
    """All studies of a sweep take turns, so that no study's tail leaves the cluster idle."""

    def __init__(
        self,
        studies: Iterable[Sequence[Trial]],
        budget: int | None,
        finished: Mapping[str, Values],
        shared: dict[str, Any],
        closed: Closed = lambda: None,
        begun: Container[str] = (),
    ) -> None:
        super().__init__([], shared, closed)
        self.studies = [Study(points, budget, finished, begun) for points in studies]
        self.owner: dict[str, tuple[Study, str]] = {}

    @property
    def left(self) -> int:
        return sum(study.budget - len(study.asked) for study in self.studies if not study.exhausted)

    def suggest(self, trial_id: str) -> Any:
        open_studies = [study for study in self.studies if not study.exhausted]
        if not open_studies or self.closed():
            return Searcher.FINISHED
        study = min(open_studies, key=lambda candidate: len(candidate.asked) / candidate.budget)
        trial = study.ask()
        self.owner[trial_id] = (study, trial.id())
        return {"trial": dump_trial(trial), **self.shared}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        study, key = self.owner.pop(trial_id)
        study.tell(key, None if error else benchmarks.gains(study.benchmark, result or {}))
