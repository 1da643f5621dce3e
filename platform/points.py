"""A sweep's points: the trials of each strategy, before anything is known of what is done already."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic import ValidationError

from search_spaces.base import Choice, Sweep
from trainables import presets
from trainables.commands import describe
from trainables.config import Benchmark, Model, Recipe, Rectifier, RetainEvaluation, Trial
from trainables.errors import InputError
from trainables.models import depth_of

STRATEGIES = ("grid", "paper", "optuna")
Models = Callable[[str], tuple[Model, RetainEvaluation]]
"""Split -> target model and retain evaluation."""


def enumerate_trials(sweep: Sweep, strategy: str, benchmarks: dict[str, Benchmark], models: Models) -> list[Trial]:
    """Every trial of the sweep, each once. `optuna` searches the points of `grid`, the published one first."""
    trials: dict[str, Trial] = {}
    for split in sweep.splits:
        for seed in sweep.seeds:
            for method in sweep.methods:
                for rectifier in _rectifiers(sweep, strategy, method, split):
                    trial = _trial(sweep, split, seed, method, rectifier, benchmarks[split], models(split))
                    trials.setdefault(trial.id(), trial)
    return list(trials.values())


def published(sweep: Sweep, method: str, split: str) -> Choice:
    """The setting of GRU that the sweep's source gives for a cell: the last choice that fits."""
    fitting = [c for c in sweep.choices if c.method in (None, method) and c.split in (None, split)]
    if not fitting:
        raise InputError(f"sweep {sweep.name}: no published choice of gamma and tau for {method} on {split}")
    return fitting[-1]


def check_layer(trial: Trial, recipes: dict[str, Recipe]) -> None:
    """Refuse a layer that RMU cannot steer in the target, or in what a target to be made starts from.

    `recipes`: by the folder that each will make. The depth of a hub id is not known before it is fetched.
    """
    if trial.method != "rmu":
        return
    target, architecture = trial.target, None
    while target.path in recipes:
        recipe = recipes[target.path]
        if recipe.base is None:
            architecture = dict(recipe.architecture)
            break
        target = recipe.base
    depth = depth_of(target) if architecture is None else architecture.get("num_hidden_layers")
    if isinstance(depth, int):
        presets.check_layer(presets.constants("rmu", trial.objective, trial.benchmark.split).layer, depth)


def _rectifiers(sweep: Sweep, strategy: str, method: str, split: str) -> Iterator[dict[str, object]]:
    for name in sweep.rectifiers:
        if name in ("none", "pcgrad"):
            yield {"name": name}
        elif name == "clip":
            yield from ({"name": "clip", "tau": tau} for tau in sweep.taus if tau is not None)
        else:
            choice = published(sweep, method, split)
            first = (choice.gamma, choice.tau)
            grid = [(gamma, tau) for gamma in sweep.gammas for tau in sweep.taus]
            if strategy == "paper":
                grid = [first]
            elif strategy == "optuna" and first in grid:
                grid = [first, *(point for point in grid if point != first)]
            yield from ({"name": name, "gamma": gamma, "tau": tau} for gamma, tau in grid)


def _trial(
    sweep: Sweep,
    split: str,
    seed: int,
    method: str,
    rectifier: dict[str, object],
    benchmark: Benchmark,
    models: tuple[Model, RetainEvaluation],
) -> Trial:
    target, retain_evaluation = models
    try:
        return Trial(
            method=method,  # type: ignore[arg-type]
            rectifier=_rectifier(rectifier),
            objective=sweep.objective,
            benchmark=benchmark,
            target=target,
            retain_evaluation=retain_evaluation,
            training=sweep.training,
            resources=sweep.resources,
            seed=seed,
            observe=sweep.observe,
        )
    except ValidationError as error:
        raise InputError(f"sweep {sweep.name}: {describe(error)}") from error


def _rectifier(fields: dict[str, object]) -> Rectifier:
    try:
        return Rectifier.model_validate(fields)
    except ValidationError as error:
        problems = describe(error)
        raise InputError("; ".join(f"rectifier.{problem}" for problem in problems.split("; "))) from error
