"""Optuna's samplers by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import optuna

STARTUP = 5
"""Trials of a study that are drawn at random before its sampler learns from them."""
SAMPLERS: dict[str, Callable[[int, int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed, budget: optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, multivariate=True),
    "nsga2": lambda seed, budget: optuna.samplers.NSGAIISampler(seed=seed, population_size=_population(budget)),
    "nsga3": lambda seed, budget: optuna.samplers.NSGAIIISampler(seed=seed, population_size=_population(budget)),
    "gp": lambda seed, budget: optuna.samplers.GPSampler(seed=seed, n_startup_trials=STARTUP),
    "random": lambda seed, budget: optuna.samplers.RandomSampler(seed=seed),
    "qmc": lambda seed, budget: optuna.samplers.QMCSampler(seed=seed, scramble=True),
}
"""Seed and trials of a study -> sampler."""


def silence_optuna() -> None:
    """Keep Optuna's notices out of a command's output."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def _population(budget: int) -> int:
    """Return the size of a generation: a study of a few dozen trials is to have some."""
    return min(50, max(4, budget // 4))
