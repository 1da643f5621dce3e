"""A sweep's results: its trials and reference models, and what its selection rule makes of them.

`SweepResults.tidy_frame` has the columns of the paper's tables, a row for each setting and metric.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from analysis import labels, paper
from analysis.labels import REFERENCE_LABELS, Goals, format_setting_value, rank_values, takes_setting
from analysis.load.trials import (
    CHOICE_VALUE_COLUMNS,
    STRENGTH_COLUMNS,
    evaluated,
    load,
    references,
    settings,
    tabulate_uwc_mixtures,
)
from analysis.stats import significance
from trainables.benchmarks.selection import Candidate, average_over_seeds, pick_best_candidate
from trainables.config.settings import Selection
from trainables.robustness.attacks import read_trial_recoveries
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import RETRAINED, SweepFile

STUDY_KEY_COLUMNS = ["benchmark.split", "method", "rectifier.name"]
SHORT_NAMES = {"benchmark.split": "split", "rectifier.name": "rectifier"}
SHORT_NAMES |= {f"rectifier.{name}": name for name in ("gamma", "tau")}
"""What tidy frames and figures call the columns of `load.trials.load`."""
TIDY_COLUMNS = list(paper.load_table("tofu_main").columns)
SETTING_COLUMNS = ["configuration", "split", "method", "rectifier", "gamma", "tau", "strength", "id"]
RUNS_TABLE_NAME = "runs"
"""What stands in `table` where a frame comes from runs; else it is the name of a table of the paper."""
UWC_CHECK_METRICS = ("reached", "monotone", "unmixed")
"""Metrics of a mixture of UWC: the share of its seeds for which each holds."""


@dataclass(frozen=True)
class SweepResults:
    """`runs`: of `load.trials.load`; `models`: of `load.trials.references`; what follows from both is made once."""

    runs: pd.DataFrame
    models: pd.DataFrame
    rule: Selection
    store: Storage
    retrained: pd.DataFrame
    """The retain models of all seeds, where there are several; `models` has the first alone."""

    @cached_property
    def goals(self) -> Goals:
        return labels.find_goals_of_runs(self.runs)

    @cached_property
    def setting_means(self) -> pd.DataFrame:
        return average_settings_over_seeds(self.runs, self.rule)

    @cached_property
    def chosen(self) -> pd.DataFrame:
        return choose_settings(self.setting_means, self.models, self.goals, self.rule)

    @cached_property
    def chosen_trials(self) -> pd.DataFrame:
        """Return the evaluated trials, one row for each seed, of the chosen settings, in table order."""
        kept = evaluated(self.runs) & mark_reported_trials(self.runs, self.rule)
        kept &= self.runs["configuration"].isin(self.chosen["configuration"])
        return sort_by_study(self.runs.loc[kept].sort_values("seed", kind="stable"))

    @cached_property
    def bootstrapped_utilities(self) -> dict[str, significance.Array]:
        """Return the utility of each of `chosen_trials` over resamples of its rows, by id, as far as rows are there."""
        trials = self.chosen_trials.dropna(subset=[self.goals.retention.metric])
        bootstrap = partial(significance.bootstrap_trial_utility, store=self.store, halves=self.rule.halves)
        found = {str(trial["id"]): bootstrap(trial) for trial in trials.to_dict("records")}
        return {key: utilities for key, utilities in found.items() if utilities is not None}

    @cached_property
    def chosen_values(self) -> pd.DataFrame:
        """Return each of `chosen_trials` with a utility: its setting, goals, KS distance and rows.

        low, high: 95 % bootstrap interval of the goal of retention over the evaluation rows.
        """
        metrics = [goal.metric for goal in self.goals.all_goals]
        beside = significance.KS_COLUMNS if self.goals.removal_goal.metric == "forget_quality" else []
        columns = ["split", "method", "rectifier", "gamma", "tau", "strength", "seed", *metrics, *beside, "id"]
        trials = self.chosen_trials.dropna(subset=[self.goals.retention.metric])
        bounds = {key: significance.percentile_interval(found) for key, found in self.bootstrapped_utilities.items()}
        low, high = ([bounds.get(key, (math.nan, math.nan))[end] for key in trials["id"]] for end in (0, 1))
        return trials.rename(columns=SHORT_NAMES).reindex(columns=columns).assign(low=low, high=high)

    @cached_property
    def attack_recovery(self) -> pd.DataFrame:
        """Return a row for each chosen setting, attack and step, in table order: means over the attacked seeds.

        `attacked` of them; `share` is of the `n` that have one, with `share_sd`. Empty where no trial was attacked.
        """
        study = STUDY_KEY_COLUMNS
        trials, measured = self.chosen_trials[["id", *study]], ["before", "after", "target", "retain", "share"]
        rows = [{"id": key} | row for key in trials["id"] for row in read_trial_recoveries(key, self.store)]
        found = trials.merge(pd.DataFrame(rows, columns=["id", "attack", "title", "step", *measured]), on="id")
        groups = found.groupby([*study, "attack", "step", "title"], sort=False)
        means: dict[str, Any] = {name: (name, "mean") for name in measured}
        means |= {"share_sd": ("share", "std"), "n": ("share", "count"), "attacked": ("id", "size")}
        return groups.agg(**means).reset_index().rename(columns=SHORT_NAMES)

    @cached_property
    def tidy_frame(self) -> pd.DataFrame:
        """Return one row for each setting and metric: `value`, `sd` (n - 1) and `n` over its seeds; TIDY_COLUMNS.

        `gamma` and `tau` are texts (`none`, `%g`, empty). What is not measured yet has NaN and n = 0. `other` says
        what else the sweep varies within a study. Mixtures of UWC are rows with `target`, `weight` and
        UWC_CHECK_METRICS.
        """
        runs, goals = self.runs, self.goals
        found = _settings(runs, self.setting_means)
        models = self.models.rename(columns={"role": "method", "evaluation": "id"})
        models = models.melt(["method", "split", "id"], goals.metrics, "metric", "value")
        models["value"] = models["value"].astype(float)
        models = models.assign(configuration="", rectifier="none", gamma="", tau="", n=models["value"].notna())
        measured = []
        for metric in goals.metrics:
            stats = {"value": metric, "sd": f"{metric}_sd", "n": f"{metric}_n"}
            rows = found.reindex(columns=[*SETTING_COLUMNS, *stats.values()])
            rows = rows.set_axis([*SETTING_COLUMNS, *stats], axis=1)
            measured.append(rows.assign(metric=metric, n=rows["n"].fillna(0)))
        mixtures = tabulate_uwc_mixtures(runs.loc[mark_reported_trials(runs, self.rule)])
        mixtures = mixtures.merge(runs[["id", "configuration"]], on="id").drop(columns="id")
        metrics = ["forget_quality", "model_utility", "weight", *UWC_CHECK_METRICS]
        mixtures[metrics] = mixtures[metrics].astype(float)
        mixtures = mixtures.melt(["configuration", "target"], metrics, "metric", "value")
        groups = mixtures.groupby(["configuration", "target", "metric"], sort=False)["value"]
        mixtures = groups.agg(["mean", "std", "count"]).set_axis(["value", "sd", "n"], axis=1).reset_index()
        mixtures = found.reindex(columns=SETTING_COLUMNS).merge(mixtures, on="configuration")
        parts = [models, pd.concat(measured).sort_index(kind="stable"), mixtures]
        frame = pd.concat([part for part in parts if len(part)] or parts)
        names = list_varied_settings(runs)
        values = settings(runs).reindex(columns=names)
        texts = [", ".join(f"{name}={one}" for name, one in zip(names, row, strict=True)) for row in values.to_numpy()]
        others = dict(zip(values.index, texts, strict=True))
        backbone = next(iter(runs.reindex(columns=["backbone"])["backbone"].dropna()), "")
        frame = frame.assign(
            table=RUNS_TABLE_NAME,
            benchmark=goals.benchmark,
            backbone=backbone,
            bold=False,
            other=[others.get(configuration, "") for configuration in frame["configuration"]],
            chosen=frame["configuration"].isin(self.chosen["configuration"]) | frame["method"].isin(REFERENCE_LABELS),
            n=frame["n"].astype(int),
        )
        return frame.reindex(columns=TIDY_COLUMNS).reset_index(drop=True)


def read_sweep_results(sweep: SweepFile, storage: Storage) -> SweepResults:
    models = references(sweep.label, storage)
    again = models["role"] == RETRAINED
    retrained = models.loc[models["role"].isin(["retain", RETRAINED]) & again.any()]
    kept = models.loc[~again].reset_index(drop=True)
    return SweepResults(load(sweep.label, storage), kept, sweep.selection, storage, retrained)


def join_sweep_frames(frames: Mapping[str, pd.DataFrame], first: Collection[str] = ()) -> pd.DataFrame:
    """Return the rows of several sweeps as one frame, `sweep` saying which each is of; of one sweep its own frame.

    What several have, a method with a rectifier on a split of a backbone, is of one with results, then of one named in
    `first`, then of the one given earlier.
    """
    if len(frames) == 1:
        return next(iter(frames.values()))
    order = sorted(frames, key=lambda label: not {label, label.rpartition("-")[0]} & set(first))
    rows = pd.concat([frames[label].assign(sweep=label) for label in order], ignore_index=True)
    study = [*(rows[name] for name in ("backbone", "split", "method", "rectifier")), rows["target"].notna()]
    measured = (rows["n"] > 0).groupby([*study, rows["sweep"]]).transform("any")
    rank = rows["sweep"].map(order.index) + (~measured).astype(int).mul(len(order))
    return rows.loc[rank == rank.groupby(study).transform("min")].reset_index(drop=True)


def _settings(runs: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `average_settings_over_seeds` and, with n = 0, of unmeasured ones; gamma and tau as text."""
    absent = runs.dropna(subset=["configuration", *STUDY_KEY_COLUMNS])
    absent = absent.loc[~absent["configuration"].isin(measured["configuration"])]
    absent = absent.sort_values("id", kind="stable").drop_duplicates("configuration")
    columns = [*STUDY_KEY_COLUMNS, "configuration", "id", "rectifier.gamma", "rectifier.tau", "strength"]
    absent = absent[columns].rename(columns={"rectifier.gamma": "gamma", "rectifier.tau": "tau"})
    parts = [part for part in (measured, absent) if len(part)] or [measured]
    found = sort_by_study(pd.concat(parts)).rename(columns=SHORT_NAMES)
    for setting in ("gamma", "tau"):
        texts = pd.Series([format_setting_value(value) for value in found[setting]], index=found.index, dtype="str")
        found[setting] = texts.where([takes_setting(name, setting) for name in found["rectifier"]], "")
    return found


def mark_reported_trials(runs: pd.DataFrame, rule: Selection) -> pd.Series:
    """Return which trials are reported: all, but for those of `Selection.seeds` where their setting ran with others."""
    fresh = ~runs["seed"].isin(rule.seeds)
    again = set(runs.loc[fresh & evaluated(runs), "configuration"].dropna())
    return pd.Series(fresh | ~runs["configuration"].isin(list(again)))


def average_settings_over_seeds(runs: pd.DataFrame, rule: Selection) -> pd.DataFrame:
    """Return one row for each configuration: mean, sd (n - 1) and n over the seeds of its trials that have a utility.

    What is shown is averaged over the trials of `mark_reported_trials`, what the rule goes by over its own seeds,
    where any trial has one. `id` is the lowest of its trials' ids, `planned` counts its trials of whatever status,
    `seeds` lists those used.
    """
    goals = labels.find_goals_of_runs(runs)
    able = evaluated(runs) & runs["choice.utility"].notna() & runs[goals.retention.metric].notna()
    asked = able & runs["seed"].isin(rule.seeds)
    counting = runs.loc[asked if asked.any() else able]
    averages = average_over_seeds({str(key): _candidates(trials) for key, trials in counting.groupby("configuration")})
    choice = pd.DataFrame(averages, columns=["key", "removal", "utility"]).set_index("key").astype(float)
    choice.columns = CHOICE_VALUE_COLUMNS
    reported = mark_reported_trials(runs, rule)
    runs, able = runs.loc[reported], able & reported
    shown = list(dict.fromkeys([*goals.metrics, goals.removal_goal.metric]))
    stats = {"": "mean", "_sd": "std", "_n": "count"}
    averaged = {f"{metric}{end}": (metric, stat) for metric in shown for end, stat in stats.items()}
    groups = runs.loc[able].sort_values("seed", kind="stable").groupby([*STUDY_KEY_COLUMNS, "configuration"])
    rows = groups.agg(
        id=("id", "min"),
        gamma=("rectifier.gamma", "first"),
        tau=("rectifier.tau", "first"),
        strength=("strength", "first"),
        seeds=("seed", _texts),
        chosen_step=("chosen_step", _texts),
        n=("id", "size"),
        **averaged,
        relative_change=("relative_change", "mean"),
    )
    planned = runs["configuration"].value_counts()
    found = rows.reset_index().assign(planned=lambda frame: frame["configuration"].map(planned))
    return found.join(choice, on="configuration")


def _candidates(rows: pd.DataFrame) -> list[Candidate]:
    columns = zip(rows["id"], rows["choice.removal"], rows["choice.utility"], strict=True)
    return [Candidate(key, None if math.isnan(removal) else removal, utility) for key, removal, utility in columns]


def _texts(numbers: pd.Series) -> str:
    return ", ".join(f"{number:g}" for number in numbers.dropna())


def choose_settings(means: pd.DataFrame, references: pd.DataFrame, goals: Goals, rule: Selection) -> pd.DataFrame:
    """Return the configuration of `average_settings_over_seeds` that the rule chooses of every study, in table order.

    Adds `choice.original` and `original` (the original model's utility on the rows that are chosen on, and reported),
    `bar` (the share of it that is to be kept; NaN where it is not known or 0), `kept` and `settings` (their number).
    """
    configurations = means.copy()
    originals = references.loc[references["role"] == "original"].set_index("split")
    models = originals.reindex(configurations["benchmark.split"])
    configurations["choice.original"] = original = models["choice.utility"].to_numpy(dtype=float)
    configurations["bar"] = rule.share * np.where(original > 0, original, np.nan)
    configurations["original"] = models[goals.retention.metric].to_numpy(dtype=float)
    configurations["kept"] = configurations["choice.utility"] >= configurations["bar"]
    configurations = configurations.dropna(subset=["choice.utility"])  # none of its trials has a seed that is chosen on
    studies = configurations.groupby(STUDY_KEY_COLUMNS)
    configurations["settings"] = studies["id"].transform("size")
    chosen = [pick_setting_by_rule(study, rule) for _, study in studies]
    return sort_by_study(pd.concat(chosen) if chosen else configurations)


def pick_setting_by_rule(study: pd.DataFrame, rule: Selection) -> pd.DataFrame:
    """Return the row of `study` that the rule picks. `choice.original`: the target model's utility, NaN if unknown."""
    chosen = pick_best_candidate(_candidates(study), study["choice.original"].iloc[0], rule)
    return study.loc[study["id"] == (chosen.key if chosen else None)]


def sort_by_study(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort by split, then by the order of methods and of rectifiers in `labels`."""
    return frame.sort_values(STUDY_KEY_COLUMNS, key=rank_values, kind="stable", ignore_index=True)


def list_varied_settings(runs: pd.DataFrame) -> list[str]:
    """Return the settings, besides gamma, tau and a task vector's strength, that differ within at least one study."""
    table = settings(runs).map(str)
    if table.empty:
        return []
    known = {*STUDY_KEY_COLUMNS, "rectifier.gamma", "rectifier.tau", *STRENGTH_COLUMNS}
    studies = table.groupby([column for column in STUDY_KEY_COLUMNS if column in table])
    return [column for column in table if column not in known and max(studies[column].nunique()) > 1]
