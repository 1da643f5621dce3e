"""Optuna's studies of a sweep: their parameters and samplers, which point is asked for next, what is told of one."""

import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.distributions import CategoricalDistribution as Unordered

from platform.plan.spaces import StudySpace, find_nearest_value, get_by_path
from search_spaces.schema.sweep import Axis, OptunaSearchSettings, Range
from trainables import benchmarks
from trainables.benchmarks.selection import pick_half_metrics
from trainables.common.errors import InputError
from trainables.config.trial import Trial

OPTUNA_FAILED_STATE = optuna.trial.TrialState.FAIL
DEFAULT_SEARCH = OptunaSearchSettings()
UTILITY_FLOOR_CONSTRAINT = "floor"
MAX_KNOWN_PROPOSALS_IN_A_ROW = 200
"""Proposals in a row that were tried before, after which a space with ranges is taken to be searched."""
GoalValues = tuple[float, ...] | None
"""The benchmark's goals in a trial, on TOFU FQ and MU, turned so that more is better; None: it has no numbers.

They are of the rows that the selection rule goes by: with `selection.halves` not of those that are reported."""
STARTUP_TRIALS = 5
"""Trials of a study that are drawn at random before its sampler learns from them."""
SAMPLER_FACTORIES: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS, multivariate=True),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed, n_startup_trials=STARTUP_TRIALS),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


def orient_goals_of_result(trial: Trial, document: Mapping[str, Any], names: Sequence[str] = ()) -> GoalValues:
    """Return the goals of a result, or of a document with its `metrics` and `halves`; `names`: of search.goals."""
    goals = benchmarks.choose_search_goals(trial.benchmark, names)
    return benchmarks.orient_goal_values(trial.benchmark.name, pick_half_metrics(document, trial.selection), goals)


class OptunaParameterSpace:
    """A space's axes of several values, as Optuna sees them: ranges, places of ordered numbers, choices of words."""

    def __init__(self, space: StudySpace) -> None:
        self.axes: dict[str, Axis] = {}
        """With the published value on each, each value once, numbers in rising order before all else."""
        self.distributions: dict[str, BaseDistribution] = {}
        for path, axis in space.axes.items():
            if isinstance(axis, Range):
                kind: Any = IntDistribution if axis.has_whole_numbers else FloatDistribution
                self.axes[path], self.distributions[path] = axis, kind(axis.low, axis.high, log=axis.log)
                continue
            values = list(dict.fromkeys((*axis, space.published[path])))
            if ordered := path != "seed" and {*map(type, values)} <= {int, float, type(None)}:
                values.sort(key=lambda value: (value is None, value))
            self.axes[path] = tuple(values)
            if len(values) > 1:
                places = range(len(values))
                self.distributions[path] = IntDistribution(0, places[-1]) if ordered else Unordered(places)

    def encode(self, trial: Trial) -> dict[str, Any]:
        """Return the parameters of a trial; what lies outside of an axis is its nearest value."""
        values = {path: find_nearest_value(self.axes[path], get_by_path(trial, path)) for path in self.distributions}
        return {
            path: value if isinstance(axis := self.axes[path], Range) else axis.index(value)
            for path, value in values.items()
        }

    def decode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the point of parameters that Optuna proposes."""
        point: dict[str, Any] = {}
        for path, axis in self.axes.items():
            value = params.get(path, 0)
            if not isinstance(axis, Range):
                point[path] = axis[value]
            else:
                short = float(f"{value:.4g}")  # as people type and read it
                point[path] = value if axis.has_whole_numbers else min(max(short, axis.low), axis.high)
        return point

    def compute_grid_distance(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
        """Return how many values of their axes lie between two points of a grid; of words 1 between any two."""
        apart = {path: abs(one[path] - other[path]) for path in other}
        return sum(min(n, 1) if isinstance(self.distributions[path], Unordered) else n for path, n in apart.items())


class OptunaStudy:
    """One Optuna study of one study of the sweep: every goal's gain maximised, no point twice.

    First come points that an earlier start left `unfinished`, and the published one. `known`: it, and the trials of a
    grid or those that were run. `floor`: trials below this utility are infeasible (Optuna's constraints).
    """

    def __init__(
        self,
        space: StudySpace,
        known: Sequence[Trial],
        budget: int,
        finished: Mapping[str, GoalValues],
        unfinished: Container[str] = (),
        *,
        search: OptunaSearchSettings = DEFAULT_SEARCH,
        floor: float | None = None,
    ) -> None:
        self.space, self.budget, self.search, self.floor = space, budget, search, floor
        self.trials = {trial.id(): trial for trial in known}
        self.parameters = OptunaParameterSpace(space)
        self.running: dict[str, optuna.Trial] = {}
        self.asked = {key for key in self.trials if key in finished}
        goals = benchmarks.choose_search_goals(known[0].benchmark, search.goals)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        sampler = SAMPLER_FACTORIES[search.sampler](known[0].seed + len(self.asked))
        self.study = optuna.create_study(directions=["maximize" for _ in goals], sampler=sampler)
        for key in filter(finished.__contains__, self.trials):
            self.running[key] = self._enqueue(key)
            self.tell(key, finished[key])
        first = [key for key in self.trials if key in unfinished] + [known[0].id()]
        self.first = [key for key in dict.fromkeys(first) if key not in self.asked]

    @property
    def remaining(self) -> int:
        return max(0, self.budget - len(self.asked))

    def ask(self) -> Trial | None:
        """Return the next trial, None if Optuna proposes none that was not asked before."""
        if self.first:
            key = self.first.pop(0)
            proposed = self._enqueue(key)
        elif self.space.has_ranges:
            for _ in range(MAX_KNOWN_PROPOSALS_IN_A_ROW):
                proposed = self.study.ask(self.parameters.distributions)
                try:
                    trial = self.space.make_trial(self.parameters.decode(proposed.params))
                except InputError:  # settings that exclude each other
                    trial = None
                if trial is not None and trial.id() not in self.asked:
                    key = trial.id()
                    self.trials[key] = trial
                    break
                self.study.tell(proposed, state=OPTUNA_FAILED_STATE)
            else:
                self.budget = len(self.asked)
                return None
        else:  # Optuna's proposal, or the nearest point that was not asked before: the first one of several
            proposed = self.study.ask(self.parameters.distributions)
            places = {one: self.parameters.encode(trial) for one, trial in self.trials.items() if one not in self.asked}
            key = min(places, key=lambda one: self.parameters.compute_grid_distance(places[one], proposed.params))
            if places[key] != proposed.params:
                self.study.tell(proposed, state=OPTUNA_FAILED_STATE)
                proposed = self._enqueue(key)
        self.asked.add(key)
        self.running[key] = proposed
        return self.trials[key]

    def tell(self, key: str, goals: GoalValues) -> None:
        """Take the outcome of a point that was asked; None: it failed or diverged."""
        proposed = self.running.pop(key)
        if goals is not None and self.floor is not None:
            proposed.set_constraint(UTILITY_FLOOR_CONSTRAINT, self.floor - goals[-1])
        self.study.tell(proposed, goals, state=OPTUNA_FAILED_STATE if goals is None else None)

    def tell_result(self, key: str, result: Mapping[str, Any] | None) -> None:
        """Take the result of a point that was asked; None: it was lost."""
        self.tell(key, orient_goals_of_result(self.trials[key], result or {}, self.search.goals))

    def _enqueue(self, key: str) -> optuna.Trial:
        """Return Optuna's trial of a point that was chosen here."""
        self.study.enqueue_trial(self.parameters.encode(self.trials[key]))
        return self.study.ask(self.parameters.distributions)
