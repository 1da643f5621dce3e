"""Which of the settings that a study varied decide its goals: Optuna's parameter importance, PED-ANOVA."""

import warnings
from typing import Any

import pandas as pd

from analysis.labels import format_setting_value
from analysis.load.goal_columns import goals_of_runs
from analysis.load.trials import evaluated, settings
from analysis.stats.chosen_settings import STUDY_COLUMNS, average_settings_over_seeds, sort_studies
from trainables.config.settings import Selection
from trainables.config.types import LOG_SCALE_MIN_RATIO

MIN_SETTINGS_FOR_IMPORTANCE = 10
BEST_SETTINGS_SHARE = 0.25
"""The share of a study's settings whose values are compared with those of all (PED-ANOVA's target quantile)."""
IMPORTANCE_COLUMNS = [*STUDY_COLUMNS, "metric", "setting", "importance", "settings"]


def measure_importance(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each study, goal and setting that the study varied: `importance`, shares that sum to 1.

    It is the share in what tells the best quarter of a study's settings, in that goal, from all of them (PED-ANOVA,
    Watanabe et al., IJCAI 2023, arXiv 2304.10255), of studies with at least MIN_SETTINGS_FOR_IMPORTANCE settings.
    """
    if not evaluated(runs).to_numpy().any():
        return pd.DataFrame(columns=IMPORTANCE_COLUMNS)
    means, table, rows = sort_studies(average_settings_over_seeds(runs, Selection())), settings(runs), []
    study: Any
    for study, found in means.groupby(STUDY_COLUMNS, sort=False):
        values = table.loc[found["configuration"]].set_axis(found.index)
        varied = values.loc[:, values.map(str).nunique() > 1]
        for goal in goals_of_runs(runs).all_goals:
            gains: Any = goal.upward_value(1) * found[goal.metric].dropna()
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
            wide = values.min() > 0 and values.max() >= LOG_SCALE_MIN_RATIO * values.min()
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
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BEST_SETTINGS_SHARE)
        return optuna.importance.get_param_importances(study, evaluator=evaluator)
