"""Which settings decide a sweep's goals (PED-ANOVA)."""

import warnings
from typing import Any

import pandas as pd

from analysis.labels import find_goals_of_runs, format_setting_value
from analysis.load.trials import settings
from analysis.stats.sweep_results import STUDY_KEY_COLUMNS, average_settings_over_seeds, sort_by_study
from trainables.config.settings import Selection

MIN_SETTINGS_FOR_IMPORTANCE = 10


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
            gains: Any = goal.orient_value(1) * found[goal.metric].dropna()
            if len(gains) < MIN_SETTINGS_FOR_IMPORTANCE or gains.nunique() < 2:
                continue
            for name, share in _compare_best(varied.loc[gains.index], gains).items():
                rows.append([*study, goal.metric, name, share, len(gains)])
    return pd.DataFrame(rows, columns=[*STUDY_KEY_COLUMNS, "metric", "setting", "importance", "settings"])


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
            wide = values.min() > 0 and values.max() >= 20 * values.min()  # then on a log scale
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
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25)
        return optuna.importance.get_param_importances(study, evaluator=evaluator)
