"""Which of the settings that a study varied decide its goals: Optuna's parameter importance, PED-ANOVA."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import pandas as pd

from analysis.load.goal_columns import goals_of_runs
from analysis.load.trials import evaluated, settings
from analysis.number_format import format_setting
from analysis.stats.chosen_settings import STUDY_COLUMNS, seed_means, sort_studies
from trainables.config.types import LOG_RATIO

LEAST_SETTINGS = 10
"""The fewest evaluated settings of a study from which importance is computed."""
BEST_SHARE = 0.25
"""The share of a study's settings whose values are compared with those of all (PED-ANOVA's target quantile)."""
COLUMNS = [*STUDY_COLUMNS, "metric", "setting", "importance", "settings"]


def measure_importance(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each study, goal and setting that the study varied: `importance`, shares that sum to 1.

    It is the share in what tells the best quarter of a study's settings, in that goal, from all of them (PED-ANOVA,
    Watanabe et al., IJCAI 2023, arXiv 2304.10255). Studies with fewer than LEAST_SETTINGS settings are left out.
    """
    goals, rows = goals_of_runs(runs), []
    for study, varied, points in _list_points(runs):
        for goal in goals.compared:
            measured: Any = points.dropna(subset=[goal.metric])
            if len(measured) < LEAST_SETTINGS or len(set(measured[goal.metric])) < 2:
                continue
            shares = _compare_best(measured[varied], [goal.gain(value) for value in measured[goal.metric]])
            found = {**study, "metric": goal.metric, "settings": len(measured)}
            rows += [{**found, "setting": name, "importance": share} for name, share in shares.items()]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return sort_studies(frame) if len(frame) else frame


def _list_points(runs: pd.DataFrame) -> Iterator[tuple[dict[Hashable, Any], list[str], pd.DataFrame]]:
    """Yield the split, method and rectifier of each study, what it varied, and its settings with their goals."""
    if not evaluated(runs).to_numpy().any():
        return
    goals, table = goals_of_runs(runs), settings(runs)
    columns = [*STUDY_COLUMNS, "configuration", *(goal.metric for goal in goals.compared)]
    means = seed_means(runs).reindex(columns=columns)
    study: Any
    for study, rows in sort_studies(means).groupby(STUDY_COLUMNS, sort=False):
        values = table.loc[rows["configuration"]]
        varied = [str(name) for name in values if values[name].map(str).nunique() > 1]
        columns = {name: values[name].to_numpy() for name in varied}
        if varied:
            yield dict(zip(STUDY_COLUMNS, study, strict=True)), varied, rows.assign(**columns).reset_index(drop=True)


def _compare_best(points: pd.DataFrame, gains: Iterable[float]) -> dict[str, float]:
    """Return Optuna's importance of each setting for gains of which more is better."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    columns: dict[str, Any] = {}
    distributions: dict[str, Any] = {}
    for name in map(str, points):
        numbers: Any = pd.to_numeric(points[name], errors="coerce")
        kinds: Any = points[name].map(type)
        if numbers.notna().all() and kinds.ne(bool).all():
            values: Any = points[name].astype(float)
            wide = values.min() > 0 and values.max() >= LOG_RATIO * values.min()
            distributions[name] = FloatDistribution(values.min(), values.max(), log=bool(wide))
        else:
            values = points[name].map(lambda value: value if isinstance(value, str) else format_setting(value))
            distributions[name] = CategoricalDistribution(sorted(values.unique()))
        columns[name] = values
    study = optuna.create_study(direction="maximize")
    for place, gain in zip(points.index, gains, strict=True):
        params = {name: values[place] for name, values in columns.items()}
        trial = optuna.trial.create_trial(params=params, distributions=distributions, value=float(gain))
        study.add_trial(trial)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
        return optuna.importance.get_param_importances(study, evaluator=evaluator)
