"""The order of trials: a fixed queue, or Optuna's proposals by one Searcher of Tune over all studies of a sweep."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import optuna
from ray.tune.search import Searcher

from trainables import benchmarks
from trainables.benchmarks.selection import metrics_of
from trainables.config.trial import Trial

FAIL = optuna.trial.TrialState.FAIL
CHOICES = ("gamma", "tau", "strength", "normalise", "seed")
Goals = tuple[float, ...] | None
"""The benchmark's goals in a trial, on TOFU FQ and MU, turned so that more is better; None: it has no numbers.

They are of the rows that the selection rule goes by: with `selection.halves` not of those that are reported."""

Reason = Callable[[], str | None]
"""Returns why no further trial may begin, None if one may."""


class Queue(Searcher):
    """Suggests every trial exactly once, in order."""

    def __init__(self, trials: Sequence[Trial], shared: dict[str, Any], stop_reason: Reason = lambda: None) -> None:
        super().__init__()
        self.waiting = list(trials)
        self.shared = shared
        self.stop_reason = stop_reason

    def next_trial(self, trial_id: str) -> Trial | None:
        """Return the trial that Tune will call `trial_id`, None if none is left."""
        return self.waiting.pop(0) if self.waiting else None

    def suggest(self, trial_id: str) -> Any:
        """Return a trial as one text without defaults, because Tune keeps several copies of each value."""
        trial = None if self.stop_reason() else self.next_trial(trial_id)
        return {"trial": trial.model_dump_json(exclude_defaults=True), **self.shared} if trial else Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Learn nothing: the queue is fixed."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the storage holds what is done."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the storage holds what is done."""


class Study:
    """One Optuna study over the points of one study of the sweep: every goal's gain maximised, no point twice.

    Its parameters are gamma, tau, a task vector's strength and unit, and the seed, each a choice among the grid's
    values. Where Optuna proposes a point again, the one of those left that is nearest to it on the grid is taken.
    Points that an earlier start left `unfinished` are asked first, in their order.
    """

    def __init__(
        self,
        points: Sequence[Trial],
        budget: int | None,
        finished: Mapping[str, Goals],
        unfinished: Container[str] = (),
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.points = {trial.id(): trial for trial in points}
        self.budget = min(budget or len(points), len(points))
        self.running: dict[str, optuna.Trial] = {}
        self.order = {name: sorted({_choices(t)[name] for t in points}, key=_rank) for name in CHOICES}
        self.distributions: Any = {n: optuna.distributions.CategoricalDistribution(v) for n, v in self.order.items()}
        sampler = optuna.samplers.TPESampler(seed=points[0].seed, n_startup_trials=5)
        goals = benchmarks.find(points[0].benchmark.name).GOALS
        self.study = optuna.create_study(directions=["maximize" for _ in goals], sampler=sampler)
        self.asked = {key for key in self.points if key in finished}
        for key in filter(finished.__contains__, self.points):
            values, params = finished[key], _choices(self.points[key])
            state = FAIL if values is None else optuna.trial.TrialState.COMPLETE
            known = {"params": params, "distributions": self.distributions, "values": values and list(values)}
            self.study.add_trial(optuna.trial.create_trial(state=state, **known))
        self.first = [key for key in self.points if key in unfinished and key not in self.asked]
        published = points[0].id()
        if not self.asked and published not in self.first:
            self.first.append(published)

    @property
    def left(self) -> int:
        return max(0, self.budget - len(self.asked))

    def ask(self) -> Trial:
        """Return a point that comes first, else Optuna's proposal or the nearest point that was not asked before."""
        if self.first:
            key = self.first.pop(0)
            proposed = self._enqueue(key)
        else:
            proposed = self.study.ask(self.distributions)
            key = self._find_nearest(proposed.params)
            if _choices(self.points[key]) != proposed.params:
                self.study.tell(proposed, state=FAIL)
                proposed = self._enqueue(key)
        self.asked.add(key)
        self.running[key] = proposed
        return self.points[key]

    def _enqueue(self, key: str) -> optuna.Trial:
        """Return Optuna's trial of a point that was chosen here."""
        self.study.enqueue_trial(_choices(self.points[key]))
        return self.study.ask(self.distributions)

    def _find_nearest(self, params: dict[str, str]) -> str:
        """Return the id of the point left that is fewest grid steps from `params`, the first one of several."""

        def count_steps(key: str) -> int:
            own = _choices(self.points[key])
            return sum(abs(self.order[name].index(own[name]) - self.order[name].index(params[name])) for name in own)

        return min((key for key in self.points if key not in self.asked), key=count_steps)

    def tell(self, key: str, goals: Goals) -> None:
        """Take the outcome of a point that was asked; None: it failed or diverged."""
        self.study.tell(self.running.pop(key), goals, state=FAIL if goals is None else None)


def _choices(trial: Trial) -> dict[str, str]:
    """Return a point as Optuna's parameters, as text so that `none` is a choice among numbers."""
    vector = trial.task_vector
    made = (None, "") if vector is None else (vector.stg or vector.strength, vector.normalise)
    values = (trial.rectifier.gamma, trial.rectifier.tau, *made, trial.seed)
    texts = (value if isinstance(value, str) else "none" if value is None else f"{value:g}" for value in values)
    return dict(zip(CHOICES, texts, strict=True))


def _rank(text: str) -> tuple[float, str]:
    """Return the place of a choice on its axis: numbers in rising order, `none` after them, words last."""
    try:
        return float(text.replace("none", "inf")), ""
    except ValueError:
        return math.inf, text


def read_goals(trial: Trial, document: Mapping[str, Any]) -> Goals:
    """Return the goals of a result, or of a document with its `metrics` and `halves`."""
    return benchmarks.goal_gains(trial.benchmark.name, metrics_of(document, trial.selection))


class Studies(Queue):
    """All studies of a sweep take turns, so that no study's tail leaves the cluster idle."""

    def __init__(
        self,
        studies: Iterable[Sequence[Trial]],
        budget: int | None,
        finished: Mapping[str, Goals],
        shared: dict[str, Any],
        stop_reason: Reason = lambda: None,
        unfinished: Container[str] = (),
    ) -> None:
        super().__init__([], shared, stop_reason)
        self.studies = [Study(points, budget, finished, unfinished) for points in studies]
        self.owner: dict[str, tuple[Study, str]] = {}

    @property
    def left(self) -> int:
        return sum(study.left for study in self.studies)

    def next_trial(self, trial_id: str) -> Trial | None:
        open_studies = [study for study in self.studies if study.left]
        if not open_studies:
            return None
        study = min(open_studies, key=lambda candidate: len(candidate.asked) / candidate.budget)
        trial = study.ask()
        self.owner[trial_id] = (study, trial.id())
        return trial

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        study, key = self.owner.pop(trial_id)
        found = result or {}
        document = {"metrics": found, "halves": found.get("halves")}
        study.tell(key, None if error else read_goals(study.points[key], document))
