"""A sweep's points: the trials of each strategy, before anything is known of what is done already."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from platform.plan.models import read_architecture
from search_spaces.schema.sweep import Published, Sweep
from trainables.common.cli import describe_invalid
from trainables.common.errors import InputError
from trainables.config.methods import METHODS, RECTIFIERS, SETTINGS
from trainables.config.settings import Benchmark, Model, RetainEvaluation
from trainables.config.trial import Recipe, Trial, check_bar
from trainables.methods import presets

STRATEGIES = ("grid", "paper", "optuna")
Models = Callable[[str], tuple[Model, RetainEvaluation | None]]
"""Split -> target model and retain evaluation, None where the benchmark has no retain model."""


def enumerate_trials(sweep: Sweep, strategy: str, benchmarks: dict[str, Benchmark], models: Models) -> list[Trial]:
    """Return every trial of the sweep, each once.

    `optuna` searches the points of `grid` and the published one, which comes first, whether it is on the grid or not.
    """
    trials: dict[str, Trial] = {}
    for split in sweep.splits:
        for seed in sweep.seeds:
            for method in sweep.methods:
                row = METHODS[method]
                if row.strength and not row.batched and seed != sweep.seeds[0]:
                    continue  # nothing in it is random, so that another seed would give a copy
                for point in _list_points(sweep, strategy, method, split):
                    trial = _make_trial(sweep, seed, method, point, benchmarks[split], models(split))
                    trials.setdefault(trial.id(), trial)
    return list(trials.values())


def find_published_choice(sweep: Sweep, method: str, split: str) -> Published:
    """Return the setting that the sweep's source gives for a cell: the last choice that fits."""
    fitting = [c for c in sweep.published if c.method in (None, method) and c.split in (None, split)]
    if not fitting:
        raise InputError(f"sweep {sweep.name}: no published choice for {method} on {split}")
    return fitting[-1]


def _list_points(sweep: Sweep, strategy: str, method: str, split: str) -> list[dict[str, Any]]:
    """Return the fields of each trial that the axes decide: a task vector's strength and unit, or the rectifier."""
    row = METHODS[method]
    if not row.strength:
        return [{"rectifier": fields} for fields in _list_rectifiers(sweep, strategy, method, split)]
    vector = sweep.task_vector.model_dump()
    units = sweep.normalises if row.batched and sweep.normalises else (sweep.task_vector.normalise,)
    points = itertools.product(_list_strengths(sweep, strategy, method, split), units)
    return [{"task_vector": {**vector, row.strength: value, "normalise": unit}} for value, unit in points]


def _list_strengths(sweep: Sweep, strategy: str, method: str, split: str) -> Sequence[float]:
    """Return the strengths of task vectors; rectifiers, which are for gradients, do not multiply them."""
    field = METHODS[method].strength
    values: tuple[float, ...] = getattr(sweep, f"{field}s")
    if not values:
        raise InputError(
            f"sweep {sweep.name}: method '{method}' has no {field}s; give them with --set task_vector.{field}="
        )
    first = find_published_choice(sweep, method, split).strength
    if strategy == "paper":
        if first is None:
            raise InputError(f"sweep {sweep.name}: no published {field} for {method} on {split}; use --strategy grid")
        return [first]
    return _put_first(first, values) if strategy == "optuna" and first is not None else values


def _put_first(first: Any, values: Sequence[Any]) -> Sequence[Any]:
    return [first, *(value for value in values if value != first)]


def check_steered_layer(trial: Trial, recipes: dict[str, Recipe]) -> None:
    """Raise InputError on a layer that RMU cannot steer, if the depth of the target is known before it is fetched."""
    depth = read_architecture(trial.target, recipes).get("num_hidden_layers") if METHODS[trial.method].steers else None
    if isinstance(depth, int):
        presets.check_layer(presets.constants(trial.method, trial.objective, trial.benchmark.split).layer, depth)


def _list_rectifiers(sweep: Sweep, strategy: str, method: str, split: str) -> Iterator[dict[str, Any]]:
    for row in (RECTIFIERS[name] for name in sweep.rectifiers):
        points: list[dict[str, Any]] = [{}]
        if row.takes == SETTINGS:
            grid = _list_gru_points(sweep, strategy, method, split)
            points = [dict(zip(SETTINGS, point, strict=True)) for point in grid]
        elif row.takes:
            (setting,) = row.takes
            first = getattr(find_published_choice(sweep, method, split), setting) if strategy != "grid" else None
            values = getattr(sweep, f"{setting}s")
            if first is not None:
                values = [first] if strategy == "paper" else _put_first(first, values)
            points = [{setting: value} for value in values]
        yield from (
            {"name": row.name, **point} for point in points if all(point[name] is not None for name in row.requires)
        )


def _list_gru_points(sweep: Sweep, strategy: str, method: str, split: str) -> Sequence[tuple[float | None, ...]]:
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
    return _put_first(first, grid) if strategy == "optuna" else grid


def _make_trial(
    sweep: Sweep,
    seed: int,
    method: str,
    point: Mapping[str, Any],
    benchmark: Benchmark,
    models: tuple[Model, RetainEvaluation | None],
) -> Trial:
    target, retain_evaluation = models
    training, observe = sweep.training, sweep.observe
    if METHODS[method].strength:  # such a trial takes no steps
        training, observe = training.model_copy(update={"eval_every": None, "stop_below": None}), None
    fixed = {name: getattr(sweep, name) for name in ("objective", "calibration", "selection", "resources")}
    fixed |= {"benchmark": benchmark, "target": target, "retain_evaluation": retain_evaluation}
    fixed |= {"training": training, "observe": observe}
    try:
        trial = Trial.model_validate({"method": method, "seed": seed, **fixed, **point})
    except ValidationError as error:
        raise InputError(f"sweep {sweep.name}: {describe_invalid(error)}") from error
    check_bar(trial)
    return trial
