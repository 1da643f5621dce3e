"""Optuna's journal of a sweep, STORAGE/optuna/NAME-HASH.log: a view of its trials that optuna-dashboard opens.

It is never read to decide anything. Each start, and `python -m platform.tracking sync`, makes it anew from results.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from platform.plan.space import read_setting, spell_setting
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
    """The journal of one sweep: one of Optuna's studies for each of the sweep's, with the trials that have ended."""

    def __init__(self, sweep: SweepFile, store: Storage, folder: Path | None = None) -> None:
        self.sweep = sweep
        self.store = store
        self.path = (folder or store.root / "optuna") / f"{sweep.label}.log"
        self.axes = {path: read_axis(axis) for path, axis in sweep.axes.items() if path not in STUDY}
        self.studies: dict[str, optuna.Study] = {}
        """Optuna's study by our study's name."""

    def try_add(self, trial: Trial, goals: Goals) -> None:
        """Add a trial if it can be written: a view stops no sweep."""
        with contextlib.suppress(Exception):
            self.add(trial, goals)

    def add(self, trial: Trial, goals: Goals) -> None:
        """Add a trial that has ended; goals of None: it failed."""
        params, distributions = describe_parameters(trial, self.axes)
        attributes = {
            "id": trial.id(),
            "name": name_trial(trial, self.axes),
            "folder": self.store.uri(self.store.trial(trial.id())),
        }
        state = TrialState.FAIL if goals is None else TrialState.COMPLETE
        self._open(trial).add_trial(
            optuna.trial.create_trial(
                state=state, values=goals, params=params, distributions=distributions, user_attrs=attributes
            )
        )

    def _open(self, trial: Trial) -> optuna.Study:
        name = trial.study()
        if name not in self.studies:
            silence_optuna()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            goals = benchmarks.find(trial.benchmark.name).GOALS
            study = optuna.create_study(
                storage=optuna.storages.JournalStorage(JournalFileBackend(str(self.path))),
                study_name=f"{self.sweep.label} {name}",
                directions=["maximize" for _ in goals],
                load_if_exists=True,
            )
            study.set_metric_names([f"{goal.short}, more is better" for goal in goals])
            self.studies[name] = study
        return self.studies[name]


def read_goals(trial: Trial, document: Mapping[str, Any], names: Sequence[str] = ()) -> Goals:
    """Return the goals of a result, or of a document with its `metrics` and `halves`; `names`: of search.goals."""
    goals = benchmarks.choose_goals(trial.benchmark, names)
    return benchmarks.goal_gains(trial.benchmark.name, metrics_of(document, trial.selection), goals)


def sync_journal(sweep: SweepFile, store: Storage) -> Journal | None:
    """Make the journal of a sweep anew from its storage; None: it was never searched."""
    if not sweep.is_search or not sweep.axes:
        return None
    journal = Journal(sweep, store)
    journal.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=journal.path.parent) as folder:
        made = Journal(sweep, store, Path(folder))
        made.path.touch()
        for key in sweep.trials:
            if (result := store.result(key)) is not None:
                trial = Trial.model_validate(result["config"])
                made.add(trial, read_goals(trial, result))
        made.path.replace(journal.path)
    store.try_push(journal.path)
    return journal


def describe_parameters(trial: Trial, axes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Return a trial's values on the axes that it reads, and Optuna's distributions with these values in them."""
    params: dict[str, Any] = {}
    found: dict[str, BaseDistribution] = {}
    for path, axis in axes.items():
        value = read_setting(trial, path)
        values: Any = (axis.low, axis.high, value) if isinstance(axis, Range) else tuple(dict.fromkeys((*axis, value)))
        if len(values) == 1 or not has_effect(path, trial.method, trial.rectifier.name):
            continue
        if all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
            low, high = min(values), max(values)
            log = axis.log if isinstance(axis, Range) else low > 0 and high / low >= LOG_RATIO
            whole = all(isinstance(one, int) for one in (low, high, value))
            found[path] = IntDistribution(low, high, log) if whole else FloatDistribution(low, high, log)
            params[path] = value
        else:
            found[path] = CategoricalDistribution([spell_setting(one) for one in values])
            params[path] = spell_setting(value)
    return params, found
