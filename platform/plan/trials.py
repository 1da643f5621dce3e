"""A sweep's points: the trials of each strategy, before anything is known of what is done already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pydantic import ValidationError

from search_spaces.schema.sweep import Published, Sweep
from trainables.common.cli import describe_invalid
from trainables.common.errors import InputError
from trainables.config.methods import METHODS, RECTIFIERS, SETTINGS
from trainables.config.settings import Benchmark, Model, Rectifier, RetainEvaluation, TaskVector
from trainables.config.trial import Recipe, Trial, check_bar
from trainables.methods import presets
from trainables.training.models import depth_of

STRATEGIES = ("grid", "paper", "optuna")
Models = Callable[[str], tuple[Model, RetainEvaluation | None]]
"""Split -> target model and retain evaluation, None where the benchmark has no retain model."""


def enumerate_trials(sweep: Sweep, strategy: str, benchmarks: dict[str, Benchmark], models: Models) -> list[Trial]:
    """Return every trial of the sweep, each once. `optuna` searches the points of `grid`, the published one first."""
    trials: dict[str, Trial] = {}
    for split in sweep.splits:
        for seed in sweep.seeds:
            for method in sweep.methods:
                row = METHODS[method]
                if row.strength and not row.batched and seed != sweep.seeds[0]:
                    continue  # nothing of it is random: a seed would be a copy
                for point in _list_points(sweep, strategy, method, split):
                    trial = _make_trial(sweep, split, seed, method, point, benchmarks[split], models(split))
                    trials.setdefault(trial.id(), trial)
    return list(trials.values())


def find_published_choice(sweep: Sweep, method: str, split: str) -> Published:
    """Return the setting that the sweep's source gives for a cell: the last choice that fits."""
    fitting = [c for c in sweep.published if c.method in (None, method) and c.split in (None, split)]
    if not fitting:
        raise InputError(f"sweep {sweep.name}: no published choice for {method} on {split}")
    return fitting[-1]


def _list_points(sweep: Sweep, strategy: str, method: str, split: str) -> Iterator[Mapping[str, object]]:
    """Yield the fields of each trial that the axes decide: a task vector's strength, or the rectifier."""
    if METHODS[method].strength:
        yield from ({"task_vector": vector} for vector in _list_task_vectors(sweep, strategy, method, split))
    else:
        yield from (
            {"rectifier": _make_rectifier(fields)} for fields in _list_rectifiers(sweep, strategy, method, split)
        )


def _list_task_vectors(sweep: Sweep, strategy: str, method: str, split: str) -> list[TaskVector]:
    """Return task vectors of every strength; rectifiers, which are for gradients, do not multiply them."""
    field = str(METHODS[method].strength)
    axis = f"{field}s"
    values: tuple[float | None, ...] = getattr(sweep, axis)
    if not values:
        raise InputError(
            f"sweep {sweep.name}: method '{method}' has no {axis}; give them with --set task_vector.{field}="
        )
    first = find_published_choice(sweep, method, split).strength
    if first is None and strategy == "paper":
        raise InputError(f"sweep {sweep.name}: no published {field} for {method} on {split}; use --strategy grid")
    if strategy == "paper":
        values = (first,)
    elif strategy == "optuna" and first in values:
        values = (first, *(value for value in values if value != first))
    try:
        return [TaskVector.model_validate({**sweep.task_vector.model_dump(), field: value}) for value in values]
    except ValidationError as error:
        raise InputError(f"task_vector.{describe_invalid(error)}") from error


def check_layer(trial: Trial, recipes: dict[str, Recipe]) -> None:
    """Raise InputError on a layer that RMU cannot steer in the target, or in what a target to be made starts from.

    `recipes`: by the folder that each will make. The depth of a hub id is not known before it is fetched.
    """
    if not METHODS[trial.method].steers:
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
        presets.check_layer(presets.constants(trial.method, trial.objective, trial.benchmark.split).layer, depth)


def _list_rectifiers(sweep: Sweep, strategy: str, method: str, split: str) -> Iterator[dict[str, object]]:
    for row in (RECTIFIERS[name] for name in sweep.rectifiers):
        points: list[dict[str, float | None]] = [{}]
        if row.takes == SETTINGS:
            points = [
                dict(zip(SETTINGS, point, strict=True)) for point in _list_gru_points(sweep, strategy, method, split)
            ]
        elif row.takes:
            (setting,) = row.takes
            first = getattr(find_published_choice(sweep, method, split), setting) if strategy == "paper" else None
            points = [{setting: value} for value in ([first] if first else getattr(sweep, f"{setting}s"))]
        yield from (
            {"name": row.name, **point} for point in points if all(point[name] is not None for name in row.requires)
        )


def _list_gru_points(sweep: Sweep, strategy: str, method: str, split: str) -> list[tuple[float | None, float | None]]:
    """Return GRU's points (gamma, tau): a grid, a line of it, or the published point."""
    choice = find_published_choice(sweep, method, split)
    first = (choice.gamma, choice.tau)
    if sweep.varied == "gamma":
        grid = [(gamma, choice.tau) for gamma in sweep.gammas]
    elif sweep.varied == "tau":
        grid = [(choice.gamma, tau) for tau in sweep.taus]
    elif strategy == "paper":
        return [first]
    else:
        grid = [(gamma, tau) for gamma in sweep.gammas for tau in sweep.taus]
    if strategy == "optuna" and first in grid:
        grid = [first, *(point for point in grid if point != first)]
    return grid


def _make_trial(
    sweep: Sweep,
    split: str,
    seed: int,
    method: str,
    point: Mapping[str, object],
    benchmark: Benchmark,
    models: tuple[Model, RetainEvaluation | None],
) -> Trial:
    target, retain_evaluation = models
    vector = METHODS[method].strength is not None
    stepless: dict[str, object] = {"eval_every": None, "stop_below": None} if vector else {}
    training = sweep.training.model_copy(update=stepless)
    try:
        trial = Trial(
            method=method,
            **point,  # type: ignore[arg-type]
            objective=sweep.objective,
            benchmark=benchmark,
            target=target,
            retain_evaluation=retain_evaluation,
            training=training,
            calibration=sweep.calibration,
            selection=sweep.selection,
            resources=sweep.resources,
            seed=seed,
            observe=None if vector else sweep.observe,
        )
    except ValidationError as error:
        raise InputError(f"sweep {sweep.name}: {describe_invalid(error)}") from error
    check_bar(trial)
    return trial


def _make_rectifier(fields: dict[str, object]) -> Rectifier:
    try:
        return Rectifier.model_validate(fields)
    except ValidationError as error:
        problems = describe_invalid(error)
        raise InputError("; ".join(f"rectifier.{problem}" for problem in problems.split("; "))) from error
