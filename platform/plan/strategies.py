"""The trials of each strategy. A study is a split, a method and a rectifier; its space holds the other axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from platform.plan.models import read_architecture
from platform.plan.space import Space, nearest
from search_spaces.schema.axes import STUDY, Axis, Range
from search_spaces.schema.settings_with_effect import has_effect, requires_value
from search_spaces.schema.sweep import Sweep
from trainables.common.errors import InputError
from trainables.config.method_tables import METHODS, RECTIFIERS, SETTINGS
from trainables.config.settings import Benchmark, Model, RetainEvaluation
from trainables.config.shared_artifacts import Recipe
from trainables.config.trial import Trial
from trainables.data import idk_answers
from trainables.methods import method_constants

STRATEGIES = ("grid", "paper", "optuna")
NORMALISE = "task_vector.normalise"
Models = Mapping[str, tuple[Model, RetainEvaluation | None]]
"""Target model and retain evaluation of each split, None where the benchmark has no retain model."""


def list_spaces(sweep: Sweep, strategy: str, benchmarks: dict[str, Benchmark], models: Models) -> list[Space]:
    """Return the space of each study. Raises InputError on a range that `strategy` cannot take."""
    ranges = [f"{path}={axis}" for path, axis in sweep.axes.items() if isinstance(axis, Range)]
    if ranges and strategy != "optuna":
        raise InputError(
            f"{', '.join(ranges)}: --strategy {strategy} cannot list every value of a range; write values, such as "
            f"{ranges[0].partition('=')[0]}=V1,V2, or add --strategy optuna"
        )
    return [
        space
        for split in dict.fromkeys(sweep.splits)
        for method in dict.fromkeys(sweep.axes["method"])
        for rectifier in (("none",) if METHODS[method].strength else dict.fromkeys(sweep.axes["rectifier.name"]))
        if not _is_left_out(sweep, split, method, rectifier)
        if (space := _make_space(sweep, strategy, (split, method, rectifier), benchmarks, models))
    ]


def list_trials(spaces: Iterable[Space], sweep: Sweep, strategy: str) -> list[Trial]:
    """Return every known trial, each once, sorted by split, then seed; with `optuna` the published point first."""
    trials: dict[str, Trial] = {}
    for space in spaces:
        first = [space.published] if strategy == "optuna" else []
        for point in (*first, *([] if space.has_ranges else space.list_points())):
            trial = space.make(point)
            trials.setdefault(trial.id(), trial)
    splits, seeds = list(sweep.splits), sweep.axes["seed"]
    known = [] if isinstance(seeds, Range) else list(seeds)
    return sorted(
        trials.values(),
        key=lambda one: (splits.index(one.benchmark.split), known.index(one.seed) if one.seed in known else 0),
    )


def check_steered_layer(trial: Trial, recipes: dict[str, Recipe]) -> None:
    """Raise InputError on a layer that RMU cannot steer, if the depth of the target is known before it is fetched."""
    depth = read_architecture(trial.target, recipes).get("num_hidden_layers") if METHODS[trial.method].steers else None
    if isinstance(depth, int):
        settings = method_constants.constants(trial.method, trial.objective, trial.benchmark.split)
        method_constants.check_layer(settings.layer, depth)


def _is_left_out(sweep: Sweep, split: str, method: str, rectifier: str) -> bool:
    """Return whether a cell counts a retain term twice, in a sweep with other methods that the rectifier suits."""
    retains = {
        name: method_constants.has_retain_term(name, sweep.objective, split)
        for name in sweep.axes["method"]
        if not METHODS[name].strength
    }
    return RECTIFIERS[rectifier].adds_retain and retains[method] and not all(retains.values())


def _make_space(
    sweep: Sweep, strategy: str, study: tuple[str, str, str], benchmarks: dict[str, Benchmark], models: Models
) -> Space | None:
    """Return the space of a study, None if its rectifier takes no value of an axis."""
    split, method, rectifier = study
    axes = {
        path: axis
        for path, axis in sweep.axes.items()
        if path not in STUDY and has_effect(path, method, rectifier, sweep.axes)
    }
    published = _apply_published(sweep, strategy, study, axes)
    for path, axis in axes.items():
        if not isinstance(axis, Range) and requires_value(rectifier, path):
            axes[path] = tuple(value for value in axis if value is not None)
    if () in axes.values():
        return None
    fixed = _fix_settings(sweep, study, benchmarks[split], models[split])
    for path in axes.keys() - published.keys():
        section, _, name = path.rpartition(".")
        value = fixed[section].get(name) if section else fixed[path]
        if value is None and section == "objective" and None not in axes[path]:
            value = getattr(method_constants.constants(method, sweep.objective, split), name, None)
        published[path] = nearest(axes[path], value)
        if strategy == "paper" and path in sweep.searched:
            axes[path] = (published[path],)
    return Space(sweep.name, fixed, axes, published)


def _fix_settings(
    sweep: Sweep, study: tuple[str, str, str], benchmark: Benchmark, models: tuple[Model, RetainEvaluation | None]
) -> dict[str, Any]:
    """Return the fields of a study's trials as the sweep has them, sections that have axes as mappings."""
    _, method, rectifier = study
    row, training, observe, seeds = METHODS[method], sweep.training, sweep.observe, sweep.axes["seed"]
    if row.strength:  # such a trial takes no steps
        training = training.model_copy(update={"eval_every": None, "stop_below": None, "targets": "rows"})
        observe = None
    objective = dict(sweep.objective)
    if "idk" in row.reads:
        objective["idk_fingerprint"] = idk_answers.fingerprint_answers(sweep.objective.idk)
    elif not row.custom:
        objective |= {"idk": None, "idk_fingerprint": None}
    return {
        "method": method,
        "benchmark": benchmark,
        "target": models[0],
        "retain_evaluation": models[1],
        "rectifier": {"name": rectifier, "scope": None},
        "objective": objective,
        "training": dict(training),
        "task_vector": dict(sweep.task_vector) if row.strength else None,
        "calibration": sweep.calibration,
        "selection": sweep.selection.model_copy(update={"seeds": ()}),  # of a trial's own seed there is one
        "resources": sweep.resources,
        "observe": observe,
        "seed": seeds.low if isinstance(seeds, Range) else seeds[0],
    }


def _apply_published(sweep: Sweep, strategy: str, study: tuple[str, str, str], axes: dict[str, Axis]) -> dict[str, Any]:
    """Return the published settings of a study; in `axes` they replace the values that the strategy does not try."""
    split, method, rectifier = study
    takes, strength = RECTIFIERS[rectifier].takes, METHODS[method].strength
    path = f"task_vector.{strength}"
    needed = path not in axes if strength else takes == SETTINGS
    if not (takes or strength) or (strategy == "grid" and not needed):
        return {}
    fitting = [
        choice for choice in sweep.published if choice.method in (None, method) and choice.split in (None, split)
    ]
    if not fitting:
        raise InputError(f"sweep {sweep.name}: no published choice for {method} on {split}")
    choice = fitting[-1]
    if strength:
        if choice.strength is None and (strategy == "paper" or path not in axes):
            words = f"no published {strength} for {method} on {split}; use --strategy grid with --set {path}=V1,V2"
            raise InputError(f"sweep {sweep.name}: {words}")
        found: dict[str, Any] = {} if choice.strength is None else {path: choice.strength}
    else:
        found = {path: getattr(choice, name) for name in SETTINGS if (path := f"rectifier.{name}") in axes}
    for path, value in list(found.items()):
        if requires_value(rectifier, path) and value is None:
            found.pop(path)
            continue
        varies_gamma_or_tau = takes == SETTINGS and sweep.varied
        if path not in axes or (path not in sweep.varied if varies_gamma_or_tau else strategy == "paper"):
            axes[path] = (value,)
    if strength and choice.normalise and NORMALISE in axes:
        found[NORMALISE] = choice.normalise
    return found
