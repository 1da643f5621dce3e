"""The spaces of a sweep's studies, and their trials by strategy. A study is a split, a method and a rectifier."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from search_spaces.schema.sweep import SECTIONS, STUDY_AXIS_PATHS, Axis, Range, Sweep
from trainables.common.cli import describe_invalid_settings
from trainables.common.errors import InputError
from trainables.config.method_tables import GAMMA_AND_TAU, METHODS, RECTIFIERS
from trainables.config.settings import Benchmark, Model, RetainEvaluationFile
from trainables.config.trial import Trial, check_trial_runnable, setting_has_effect
from trainables.data import raw_rows
from trainables.methods import method_constants

STRATEGIES = ("grid", "paper", "optuna")
NORMALISE_SETTING_PATH = "task_vector.normalise"
ModelsBySplit = Mapping[str, tuple[Model, RetainEvaluationFile | None]]
"""Target model and retain evaluation of each split, None where the benchmark has no retain model."""
Point = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class StudySpace:
    """The points of one study: `fixed` settings, sections as mappings, and axes.

    `published` is the point of the sweep's source, or else what is nearest to the sweep's own; it may be on no axis.
    """

    sweep: str
    fixed: Mapping[str, Any]
    axes: Mapping[str, Axis]
    published: Point

    @property
    def study(self) -> str:
        fixed = self.fixed
        return f"{fixed['benchmark'].split}/{fixed['method']}/{fixed['rectifier']['name']}"

    @property
    def size(self) -> int | None:
        """Return how many points there are, None of a range of real numbers."""
        counts = [_count(axis) for axis in self.axes.values()]
        return None if None in counts else math.prod(count for count in counts if count is not None)

    @property
    def varied_axes(self) -> list[str]:
        """Return the axes by which its trials differ other than by their seed."""
        return [path for path, axis in self.axes.items() if path != "seed" and _count(axis) != 1]

    @property
    def has_ranges(self) -> bool:
        return any(isinstance(axis, Range) for axis in self.axes.values())

    def make_trial(self, point: Point) -> Trial:
        """Return the trial at a point. Raises InputError if its settings exclude each other."""
        chosen: dict[str, Any] = {
            name: dict(value) if name in SECTIONS and value is not None else value for name, value in self.fixed.items()
        }
        for path, value in point.items():
            section, _, name = path.rpartition(".")
            (chosen[section] if section else chosen)[name] = value
        try:
            trial = Trial.model_validate(chosen)
        except ValidationError as error:
            raise InputError(f"sweep {self.sweep}: {describe_invalid_settings(error)}") from error
        check_trial_runnable(trial)
        method_constants.check_rectifier_fits_retain_terms(trial)
        return trial

    def iterate_points(self) -> Iterator[dict[str, Any]]:
        """Yield every point of axes without ranges, the last axis the fastest."""
        for values in itertools.product(*(dict.fromkeys(axis) for axis in self.axes.values())):  # type: ignore[arg-type]
            yield dict(zip(self.axes, values, strict=True))

    def find_same_trial(self, trial: Trial) -> Trial | None:
        """Return this space's trial of the same id, with its own resources, None if it has none."""
        point = {path: get_by_path(trial, path) for path in self.axes}
        if not all(point[path] in axis for path, axis in self.axes.items()):
            return None
        try:
            found = self.make_trial(point)
        except InputError:
            return None
        return found if found.id() == trial.id() else None


def get_by_path(value: Any, path: str) -> Any:
    """Return a setting of a trial or sweep by its path, None where the section is not there."""
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def format_setting_as_typed(value: Any) -> str:
    """Return a setting's value as it is typed: `none`, `true`, `0.1,0.5`."""
    if isinstance(value, tuple):
        return ",".join(map(format_setting_as_typed, value)) or "none"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _count(axis: Axis) -> int | None:
    if isinstance(axis, Range):
        return int(axis.high - axis.low) + 1 if axis.has_whole_numbers else None
    return len(set(axis))


def find_nearest_value(axis: Axis, value: Any) -> Any:
    """Return the value of an axis that is nearest to `value`; of words the first, where it is not among them."""
    if value in axis:
        return value
    if isinstance(axis, Range):
        middle = math.sqrt(axis.low * axis.high) if axis.log else (axis.low + axis.high) / 2
        near = min(max(middle if value is None else value, axis.low), axis.high)
        return round(near) if axis.has_whole_numbers else near
    numbers = [one for one in axis if isinstance(one, int | float)]
    if isinstance(value, int | float) and numbers:
        return min(numbers, key=lambda one: abs(one - value))
    return axis[0]


def list_study_spaces(
    sweep: Sweep, strategy: str, benchmarks: dict[str, Benchmark], models: ModelsBySplit
) -> list[StudySpace]:
    """Return the space of each study. Raises InputError on a range that `strategy` cannot take."""
    single = sweep.searched if strategy == "paper" else ()  # which takes one value of these
    ranges = [f"{path}={axis}" for path, axis in sweep.axes.items() if isinstance(axis, Range) and path not in single]
    if ranges and strategy != "optuna":
        advice = f"write values, such as {ranges[0].partition('=')[0]}=V1,V2, or add --strategy optuna"
        raise InputError(f"{', '.join(ranges)}: --strategy {strategy} cannot list every value of a range; {advice}")
    return [
        space
        for split in dict.fromkeys(sweep.splits)
        for method in dict.fromkeys(sweep.axes["method"])
        for rectifier in (("none",) if METHODS[method].strength else dict.fromkeys(sweep.axes["rectifier.name"]))
        if (space := _make_space(sweep, strategy, (split, method, rectifier), benchmarks, models))
    ]


def list_known_trials(spaces: Iterable[StudySpace], sweep: Sweep, strategy: str) -> list[Trial]:
    """Return every known trial, each once, sorted by split, then seed; with `optuna` the published point first."""
    trials: dict[str, Trial] = {}
    for space in spaces:
        first = [space.published] if strategy == "optuna" else []
        for point in (*first, *([] if space.has_ranges else space.iterate_points())):
            trial = space.make_trial(point)
            trials.setdefault(trial.id(), trial)
    splits, seeds = list(sweep.splits), sweep.axes["seed"]
    known = [] if isinstance(seeds, Range) else list(seeds)
    return sorted(
        trials.values(),
        key=lambda one: (splits.index(one.benchmark.split), known.index(one.seed) if one.seed in known else 0),
    )


def _make_space(
    sweep: Sweep, strategy: str, study: tuple[str, str, str], benchmarks: dict[str, Benchmark], models: ModelsBySplit
) -> StudySpace | None:
    """Return the space of a study, None if its rectifier takes no value of an axis or counts a retain term twice."""
    split, method, rectifier = study
    retains = {
        name: method_constants.has_retain_term(name, sweep.objective, split)
        for name in sweep.axes["method"]
        if not METHODS[name].strength
    }
    if RECTIFIERS[rectifier].adds_retain and retains[method] and not all(retains.values()):
        return None  # the rectifier suits other methods of the sweep
    axes = {
        path: axis
        for path, axis in sweep.axes.items()
        if path not in STUDY_AXIS_PATHS and setting_has_effect(path, method, rectifier, sweep.axes)
    }
    published = _apply_published(sweep, strategy, study, axes)
    for path, axis in axes.items():
        if not isinstance(axis, Range) and path.removeprefix("rectifier.") in RECTIFIERS[rectifier].requires:
            axes[path] = tuple(value for value in axis if value is not None)
    if () in axes.values():
        return None
    fixed = _fix_settings(sweep, study, benchmarks[split], models[split])
    for path in axes.keys() - published.keys():
        section, _, name = path.rpartition(".")
        value = fixed[section].get(name) if section else fixed[path]
        if value is None and section == "objective" and None not in axes[path]:
            value = getattr(method_constants.resolve_constants(method, sweep.objective, split), name, None)
        published[path] = find_nearest_value(axes[path], value)
        if strategy == "paper" and path in sweep.searched:
            axes[path] = (published[path],)
    return StudySpace(sweep.name, fixed, axes, published)


def _fix_settings(
    sweep: Sweep, study: tuple[str, str, str], benchmark: Benchmark, models: tuple[Model, RetainEvaluationFile | None]
) -> dict[str, Any]:
    """Return the fields of a study's trials as the sweep has them, sections that have axes as mappings."""
    _, method, rectifier = study
    row, training, observe, seeds = METHODS[method], sweep.training, sweep.observe, sweep.axes["seed"]
    if row.strength:  # such a trial takes no steps
        of_steps = dict.fromkeys(("eval_every", "stop_below", "stop_when"))
        training = training.model_copy(update=of_steps | {"targets": "rows"})
        observe = None
    objective = dict(sweep.objective)
    if "idk" in row.reads:  # whose other answers are whole sentences
        training = training.model_copy(update={"targets": "rows"})
        objective["idk_fingerprint"] = raw_rows.fingerprint_idk_answers(sweep.objective.idk)
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
    needed = path not in axes if strength else takes == GAMMA_AND_TAU
    if not (takes or strength) or (strategy == "grid" and not needed):
        return {}
    fitting = [one for one in sweep.published if one.method in (None, method) and one.split in (None, split)]
    if not fitting:
        raise InputError(f"sweep {sweep.name}: no published choice for {method} on {split}")
    choice = fitting[-1]
    if strength:
        if choice.strength is None and (path not in axes or (strategy == "paper" and path not in sweep.typed)):
            words = f"no published {strength} for {method} on {split}; use --strategy grid with --set {path}=V1,V2"
            raise InputError(f"sweep {sweep.name}: {words}")
        found: dict[str, Any] = {} if choice.strength is None else {path: choice.strength}
    else:
        found = {path: getattr(choice, name) for name in GAMMA_AND_TAU if (path := f"rectifier.{name}") in axes}
    for path, value in list(found.items()):
        if path.removeprefix("rectifier.") in RECTIFIERS[rectifier].requires and value is None:
            found.pop(path)
            continue
        if path in sweep.typed:
            found[path] = find_nearest_value(axes[path], value)
            continue
        varies_gamma_or_tau = takes == GAMMA_AND_TAU and sweep.varied
        if path not in axes or (path not in sweep.varied if varies_gamma_or_tau else strategy == "paper"):
            axes[path] = (value,)
    if strength and choice.normalise and NORMALISE_SETTING_PATH in axes.keys() - set(sweep.typed):
        found[NORMALISE_SETTING_PATH] = choice.normalise
    return found
