"""A sweep's results: its trials and reference models, and what its selection rule makes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.load.goal_columns import Goals, goals_of_runs
from analysis.load.trials import evaluated, load, references
from analysis.stats import chosen_settings, row_bootstrap, significance, tidy
from trainables.config.settings import Selection
from trainables.robustness.attack_results import read_trial_attack_results
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import RETRAINED, SweepFile


@dataclass(frozen=True)
class Results:
    """`runs`: of `load.trials.load`; `models`: of `load.trials.references`; what follows from both is made once."""

    runs: pd.DataFrame
    models: pd.DataFrame
    rule: Selection
    store: Storage
    retrained: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The retain models of all seeds, where there are several; `models` has the first alone."""

    @cached_property
    def goals(self) -> Goals:
        return goals_of_runs(self.runs)

    @cached_property
    def setting_means(self) -> pd.DataFrame:
        return chosen_settings.seed_means(self.runs, self.rule)

    @cached_property
    def chosen(self) -> pd.DataFrame:
        """Return the setting that the rule chooses of each study: `selection.pick_candidate`."""
        return chosen_settings.choose_settings(self.setting_means, self.models, self.goals, self.rule)

    @cached_property
    def chosen_trials(self) -> pd.DataFrame:
        """Return the evaluated trials, one row for each seed, of the chosen settings, in table order."""
        kept = evaluated(self.runs) & chosen_settings.is_reported(self.runs, self.rule)
        kept &= self.runs["configuration"].isin(self.chosen["configuration"])
        return chosen_settings.sort_studies(self.runs.loc[kept].sort_values("seed", kind="stable"))

    @cached_property
    def resampled_utilities(self) -> dict[str, row_bootstrap.Array]:
        """Return the utility of each of `chosen_trials` over resamples of its rows, by id, as far as rows are there."""
        trials = self.chosen_trials.dropna(subset=[self.goals.retention.metric])
        return row_bootstrap.resample_trial_utilities(trials, self.store, self.rule.halves)

    @cached_property
    def chosen_values(self) -> pd.DataFrame:
        """Return each of `chosen_trials` with a utility: its setting, goals, KS distance and rows.

        low, high: 95 % bootstrap interval of the goal of retention over the evaluation rows.
        """
        metrics = [goal.metric for goal in self.goals.all_goals]
        beside = significance.KS if self.goals.removal_goal.metric == "forget_quality" else []
        columns = ["split", "method", "rectifier", "gamma", "tau", "strength", "seed", *metrics, *beside, "id"]
        trials = self.chosen_trials.dropna(subset=[self.goals.retention.metric])
        bounds = {key: row_bootstrap.percentile_interval(found) for key, found in self.resampled_utilities.items()}
        low, high = ([bounds.get(key, (math.nan, math.nan))[end] for key in trials["id"]] for end in (0, 1))
        return trials.rename(columns=chosen_settings.SHORT).reindex(columns=columns).assign(low=low, high=high)

    @cached_property
    def recovered_shares(self) -> pd.DataFrame:
        """Return a row for each chosen setting, attack and step, in table order: means over the attacked seeds.

        `attacked` of them; `share` is of the `n` that have one, with `share_sd`. Empty where no trial was attacked.
        """
        study = chosen_settings.STUDY_COLUMNS
        trials, measured = self.chosen_trials[["id", *study]], ["before", "after", "target", "retain", "share"]
        rows = [{"id": key} | row for key in trials["id"] for row in read_trial_attack_results(key, self.store)]
        found = trials.merge(pd.DataFrame(rows, columns=["id", "attack", "title", "step", *measured]), on="id")
        groups = found.groupby([*study, "attack", "step", "title"], sort=False)
        means: dict[str, Any] = {name: (name, "mean") for name in measured}
        means |= {"share_sd": ("share", "std"), "n": ("share", "count"), "attacked": ("id", "size")}
        return groups.agg(**means).reset_index().rename(columns=chosen_settings.SHORT)

    @cached_property
    def tidy_frame(self) -> pd.DataFrame:
        """Return all of these as one long frame: `tidy.make_tidy_frame`."""
        return tidy.make_tidy_frame(self.runs, self.models, self.setting_means, self.chosen, self.goals)

    def with_runs(self, runs: pd.DataFrame) -> Results:
        return replace(self, runs=runs)


def read_results(sweep: SweepFile, storage: Storage) -> Results:
    models = references(sweep.label, storage)
    again = models["role"] == RETRAINED
    retrained = models.loc[again | (models["role"] == "retain")] if again.to_numpy().any() else pd.DataFrame()
    kept = models.loc[~again].reset_index(drop=True)
    return Results(load(sweep.label, storage), kept, sweep.selection, storage, retrained)
