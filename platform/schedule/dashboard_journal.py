"""Optuna's journal of a sweep, STORAGE/optuna/NAME-HASH.log: a view of its trials that optuna-dashboard opens.

It is never read to decide anything. Each start, and `python -m platform.tracking sync`, makes it anew from results.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from platform.plan.space import read_setting
from platform.schedule.parameters import spell_value
from platform.schedule.samplers import silence_optuna
from search_spaces.schema.axes import STUDY, Range, read_axis
from search_spaces.schema.settings_with_effect import has_effect, name_trial
from trainables import benchmarks
from trainables.benchmarks.selection import metrics_of
from trainables.config.trial import Trial
from trainables.config.types import LOG_RATIO
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile

Goals = tuple[float, ...] | None
"""The benchmark's goals in a trial, on TOFU FQ and MU, turned so that more is better; None: it has no numbers.

They are of the rows that the selection rule goes by: with `selection.halves` not of those that are reported."""


class Journal:
    """The journal of one sweep: one of Optuna's studies for each of the sweep's."""

    def __init__(self, sweep: SweepFile, store: Storage) -> None:
        self.sweep = sweep
        self.store = store
        self.path = store.root / "optuna" / f"{sweep.label}.log"
        self.axes = {path: read_axis(axis) for path, axis in sweep.axes.items() if path not in STUDY}
        self.storage: optuna.storages.BaseStorage | None = None
        self.studies: dict[str, tuple[optuna.Study, dict[str, int]]] = {}
        """Optuna's study and the numbers of its trials by our ids, by our study's name."""

    def begin(self, trial: Trial) -> None:
        """Show a trial that starts."""
        self._try(lambda: self._find(trial))

    def end(self, trial: Trial, goals: Goals) -> None:
        """Show the goals of a trial that has ended; None: it failed."""
        self._try(lambda: self._finish(trial, goals))

    def sync(self, results: Mapping[str, tuple[Trial, Goals]]) -> None:
        """Make the journal anew from the trials that have ended, by id; those that run are added as they end."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.path.parent) as folder:
            made = Path(folder) / self.path.name
            self.storage, self.studies = _open_file(made), {}
            try:
                for trial, goals in results.values():
                    self._add(trial, goals, TrialState.FAIL if goals is None else TrialState.COMPLETE)
            finally:
                self.storage, self.studies = None, {}
            made.replace(self.path)
        self.store.try_push(self.path)

    def try_sync(self, results: Mapping[str, tuple[Trial, Goals]]) -> None:
        """Make the journal anew if it can be written."""
        self._try(lambda: self.sync(results))

    def _try(self, action: Callable[[], object]) -> None:
        """Write to the journal; a view that cannot be written stops no sweep."""
        with contextlib.suppress(Exception):
            action()

    def _finish(self, trial: Trial, goals: Goals) -> None:
        study, number = self._find(trial)
        study.tell(number, goals, state=TrialState.FAIL if goals is None else TrialState.COMPLETE)

    def _find(self, trial: Trial) -> tuple[optuna.Study, int]:
        """Return Optuna's study of a trial and the trial's number there, added if it is missing."""
        study, numbers = self._open(trial)
        if trial.id() not in numbers:
            self._add(trial, None, TrialState.RUNNING)
            numbers |= number_trials(study)
        return study, numbers[trial.id()]

    def _add(self, trial: Trial, goals: Goals, state: TrialState) -> None:
        params, distributions = describe_parameters(trial, self.axes)
        attributes = {
            "id": trial.id(),
            "name": name_trial(trial, self.axes),
            "folder": self.store.uri(self.store.trial(trial.id())),
        }
        study, _ = self._open(trial)
        study.add_trial(
            optuna.trial.create_trial(
                state=state, values=goals, params=params, distributions=distributions, user_attrs=attributes
            )
        )

    def _open(self, trial: Trial) -> tuple[optuna.Study, dict[str, int]]:
        name = trial.study()
        if name not in self.studies:
            if self.storage is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.storage = _open_file(self.path)
            goals = benchmarks.find(trial.benchmark.name).GOALS
            study = optuna.create_study(
                storage=self.storage,
                study_name=f"{self.sweep.label} {name}",
                directions=["maximize" for _ in goals],
                load_if_exists=True,
            )
            study.set_metric_names([f"{goal.short}, more is better" for goal in goals])
            self.studies[name] = study, number_trials(study)
        return self.studies[name]


def number_trials(study: optuna.Study) -> dict[str, int]:
    """Return Optuna's numbers of the trials of a study by our ids; of several attempts the last one's."""
    return {one.user_attrs["id"]: one.number for one in study.get_trials(deepcopy=False) if "id" in one.user_attrs}


def _open_file(path: Path) -> optuna.storages.BaseStorage:
    silence_optuna()
    return optuna.storages.JournalStorage(JournalFileBackend(str(path)))


def read_goals(trial: Trial, document: Mapping[str, Any]) -> Goals:
    """Return the goals of a result, or of a document with its `metrics` and `halves`."""
    return benchmarks.goal_gains(trial.benchmark.name, metrics_of(document, trial.selection))


def sync_journal(sweep: SweepFile, store: Storage) -> Journal | None:
    """Make the journal of a sweep again from its storage; None: it was never searched."""
    if "optuna" not in sweep.strategies or not sweep.axes:
        return None
    results: dict[str, tuple[Trial, Goals]] = {}
    for key in sweep.trials:
        if (result := store.result(key)) is not None:
            trial = Trial.model_validate(result["config"])
            results[key] = trial, read_goals(trial, result)
    journal = Journal(sweep, store)
    journal.sync(results)
    return journal


def describe_parameters(trial: Trial, axes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Return a trial's values on the axes that it reads, and Optuna's distributions with these values in them."""
    params: dict[str, Any] = {}
    found: dict[str, BaseDistribution] = {}
    for path, axis in axes.items():
        value = read_setting(trial, path)
        values = [value] if isinstance(axis, Range) else list(dict.fromkeys((*axis, value)))
        if not has_effect(path, trial.method, trial.rectifier.name) or (
            len(values) == 1 and not isinstance(axis, Range)
        ):
            continue
        if all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
            ends = [axis.low, axis.high] if isinstance(axis, Range) else []
            low, high = min(*values, *ends, value), max(*values, *ends, value)
            log = axis.log if isinstance(axis, Range) else low > 0 and high / low >= LOG_RATIO
            whole = all(isinstance(one, int) for one in (low, high, value))
            found[path] = IntDistribution(low, high, log) if whole else FloatDistribution(low, high, log)
            params[path] = value
        else:
            found[path] = CategoricalDistribution([spell_value(one) for one in values])
            params[path] = spell_value(value)
    return params, found
