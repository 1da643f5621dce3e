"""Which setting speaks for a method, by averages over seeds and the selection rule; and which settings decide goals."""

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd

from analysis.labels import Goals, find_goals_of_runs, format_setting_value, rank_values
from analysis.load.trials import CHOICE_VALUE_COLUMNS, STRENGTH_COLUMNS, evaluated, settings
from trainables.benchmarks.selection import Candidate, average_over_seeds, describe_rule, pick_best_candidate
from trainables.config.settings import Selection

STUDY_KEY_COLUMNS = ["benchmark.split", "method", "rectifier.name"]
SHORT_NAMES = {"benchmark.split": "split", "rectifier.name": "rectifier"}
SHORT_NAMES |= {f"rectifier.{name}": name for name in ("gamma", "tau")}
"""What tidy frames and figures call the columns of `load.trials.load`."""
MIN_SETTINGS_FOR_IMPORTANCE = 10
IMPORTANCE_QUANTILE = 0.25
"""The share of a study's settings whose values are compared with those of all (PED-ANOVA's target quantile)."""
MIN_RATIO_FOR_LOG_SCALE = 20.0
"""Positive values whose greatest is so many times the least are compared on a log scale."""
IMPORTANCE_COLUMNS = [*STUDY_KEY_COLUMNS, "metric", "setting", "importance", "settings"]


def describe_report_rule(goals: Goals, rule: Selection) -> str:
    """Return the rule as a report states it: which trials are shown, and which rows they were chosen on."""
    removal = f"removal ({goals.removal_goal.short}{', less is more' if goals.removal_goal.best == 'lowest' else ''})"
    stated = describe_rule(rule, removal, goals.retention.short)
    seeds = "Trials that differ only in the seed are averaged before the choice."
    return f"Shown of each split, method and rectifier: {stated}. {seeds}"


def is_reported(runs: pd.DataFrame, rule: Selection) -> pd.Series:
    """Return which trials are reported: all, but for those of `Selection.seeds` where their setting ran with others."""
    fresh = ~runs["seed"].isin(rule.seeds)
    again = set(runs.loc[fresh & evaluated(runs), "configuration"].dropna())
    return pd.Series(fresh | ~runs["configuration"].isin(list(again)))


def average_settings_over_seeds(runs: pd.DataFrame, rule: Selection) -> pd.DataFrame:
    """Return one row for each configuration: mean, sd (n - 1) and n over the seeds of its trials that have a utility.

    What is shown is averaged over the trials of `is_reported`, what the rule goes by over its own seeds,
    where any trial has one. `id` is the lowest of its trials' ids, `planned` counts its trials of whatever status,
    `seeds` lists those used.
    """
    goals = find_goals_of_runs(runs)
    able = evaluated(runs) & runs["choice.utility"].notna() & runs[goals.retention.metric].notna()
    asked = able & runs["seed"].isin(rule.seeds)
    counting = runs.loc[asked if asked.any() else able]
    averages = average_over_seeds({str(key): _candidates(trials) for key, trials in counting.groupby("configuration")})
    choice = pd.DataFrame(averages, columns=["key", "removal", "utility"]).set_index("key").astype(float)
    choice.columns = CHOICE_VALUE_COLUMNS
    reported = is_reported(runs, rule)
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
    return [
        Candidate(key, None if math.isnan(removal) else removal, utility)
        for key, removal, utility in zip(rows["id"], rows["choice.removal"], rows["choice.utility"], strict=True)
    ]


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


def describe_varied_settings(runs: pd.DataFrame) -> dict[str, str]:
    """Return by configuration the settings of `list_varied_settings` and their values: `training.lr=0.01, seed=5`."""
    columns = list_varied_settings(runs)
    rows = settings(runs).reindex(columns=columns)
    texts = [", ".join(f"{name}={value}" for name, value in zip(columns, row, strict=True)) for row in rows.to_numpy()]
    return dict(zip(rows.index, texts, strict=True))


def measure_setting_importance(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each study, goal and setting that the study varied: `importance`, shares that sum to 1.

    It is the share in what tells the best quarter of a study's settings, in that goal, from all of them (PED-ANOVA,
    Watanabe et al., IJCAI 2023, arXiv 2304.10255), of studies with at least MIN_SETTINGS_FOR_IMPORTANCE settings.
    """
    means, table, rows = sort_by_study(average_settings_over_seeds(runs, Selection())), settings(runs), []
    study: Any
    for study, found in means.groupby(STUDY_KEY_COLUMNS, sort=False):
        values = table.loc[found["configuration"]].set_axis(found.index)
        varied = values.loc[:, values.map(str).nunique() > 1]
        for goal in find_goals_of_runs(runs).all_goals:
            gains: Any = goal.make_higher_better(1) * found[goal.metric].dropna()
            if len(gains) < MIN_SETTINGS_FOR_IMPORTANCE or gains.nunique() < 2:
                continue
            for name, share in _compare_best(varied.loc[gains.index], gains).items():
                rows.append([*study, goal.metric, name, share, len(gains)])
    return pd.DataFrame(rows, columns=IMPORTANCE_COLUMNS)


def _compare_best(points: pd.DataFrame, gains: pd.Series) -> dict[str, float]:
    """Return Optuna's importance of each setting for gains of which more is better."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    columns: dict[str, Any] = {}
    distributions: dict[str, Any] = {}
    for name in map(str, points):
        values: Any = points[name]
        numbers: Any = pd.to_numeric(values, errors="coerce")
        if numbers.notna().all() and values.map(type).ne(bool).all():
            columns[name] = values = values.astype(float)
            wide = values.min() > 0 and values.max() >= MIN_RATIO_FOR_LOG_SCALE * values.min()
            distributions[name] = FloatDistribution(values.min(), values.max(), log=bool(wide))
        else:
            columns[name] = values.map(lambda value: value if isinstance(value, str) else format_setting_value(value))
            distributions[name] = CategoricalDistribution(sorted(columns[name].unique()))
    study = optuna.create_study(direction="maximize")
    for place, gain in gains.items():
        params = {name: values[place] for name, values in columns.items()}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=float(gain)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=IMPORTANCE_QUANTILE)
        return optuna.importance.get_param_importances(study, evaluator=evaluator)
