"""`--set PATH=VALUE` and `--only FIELD=V1,V2`: what a person types, checked against the configuration's fields."""

import difflib
import importlib
import itertools
import pkgutil
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

import search_spaces.backbones
from platform.plan.spaces import StudySpace, find_nearest_value, format_setting_as_typed, get_by_path
from search_spaces.schema.backbones import Backbone
from search_spaces.schema.sweep import STUDY_AXIS_PATHS, Axis, Range, Sweep, list_allowed_axis_paths, validate_axis
from trainables.benchmarks import get_benchmark
from trainables.common.cli import describe_invalid_settings
from trainables.common.errors import InputError, ProblemCollector, suggest_name
from trainables.common.regular_files import parse_yaml, read_text
from trainables.common.typed_paths import expand_home
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.config.settings import FrozenSettings
from trainables.config.trial import setting_has_effect

RANGE_PATTERN = re.compile(r"(log\()?([^,()]*?)\.\.([^,()]*?)(?(1)\))")
SWEEP_DEFAULTS = {name: field.default for name, field in Sweep.model_fields.items()}
SWEEP_SECTIONS = {name: default for name, default in SWEEP_DEFAULTS.items() if isinstance(default, FrozenSettings)}
"""Groups of settings of a sweep, such as `training`."""
VECTOR_STRENGTH_PATHS = ("task_vector.stg", "task_vector.strength")  # one method has the one, another the other
NEEDED_SETTINGS = {"training.lora_alpha": "training.lora_rank", "selection.rows": "training.eval_every"}
NEEDED_SETTINGS |= dict.fromkeys(("calibration.tolerance", "calibration.evaluations"), "calibration.targets")
"""Settings that have an effect where another one is given."""


def apply_overrides(sweep: Sweep, settings: Sequence[str]) -> Sweep:
    """Return the sweep with every `PATH=VALUE` set; several values or a range make an axis. Raises InputError."""
    problems = ProblemCollector()
    items = [item for setting in settings for item in problems.collect_from(_read_settings, setting) or ()]
    pairs = [pair for item in items if (pair := problems.collect_from(_split_pair, item, "--set"))]
    for value in (value for path, value in pairs if path == "backbone"):
        sweep = problems.collect_from(_set_backbone, sweep, value) or sweep
    document: dict[str, Any] = sweep.model_dump() | {"axes": dict(sweep.axes)}
    axes: dict[str, str] = {}
    wrong: list[str] = []
    for path, text in ((path, text) for path, text in pairs if path != "backbone"):
        try:
            if path in axes and re.search(r",|\.\.", f"{axes[path]} {text}"):
                raise ValueError(f"{path}: set twice, to {axes[path]} and {text}; write all its values once")
            axis = _parse_axis(path, text, sweep)
            if axis is not None:
                axes[path], document["axes"][path] = text, axis
            one = isinstance(axis, tuple) and len(axis) == 1 and path not in (*STUDY_AXIS_PATHS, *VECTOR_STRENGTH_PATHS)
            if axis is None or (one and path.split(".")[0] in SWEEP_SECTIONS):
                _set_field(document, path, text)  # trials that do not read an axis have the field, too
        except ValueError as error:
            wrong.append(str(error))
    document["searched"] = tuple(path for path in document["searched"] if path not in axes)
    changed = sweep
    try:
        changed = Sweep.model_validate(document)
    except ValidationError as error:  # without a setting that was mistyped others may seem to exclude each other
        if not (problems.found or wrong) or all(one["type"] != "value_error" for one in error.errors()):
            wrong.append(describe_invalid_settings(error))
    if wrong:
        problems.found.append(f"--set: {'; '.join(wrong)}")
    problems.raise_if_any()
    cells = [*itertools.product(changed.axes["method"], changed.axes["rectifier.name"])]
    for path, text in axes.items():
        axis = changed.axes[path]
        several = isinstance(axis, Range) or len(axis) > 1 or path == "rectifier.gamma"  # of others a plan warns
        if several and path not in STUDY_AXIS_PATHS and (unread := _describe_unread_setting(path, changed, cells)):
            problems.found.append(f"--set {path}={text}: an axis that no trial reads, {unread}")
    problems.raise_if_any()
    fields = [path for path in dict(pairs) if get_by_path(changed, path) != get_by_path(sweep, path)]
    return changed.model_copy(update={"typed": tuple(dict.fromkeys([*axes, *fields]))})


def list_setting_warnings(sweep: Sweep, spaces: Sequence[StudySpace], strategy: str) -> list[str]:
    """Return a line for each setting of `--set` that is known to change no number of the spaces' trials."""
    cells, lines = [(space.fixed["method"], space.fixed["rectifier"]["name"]) for space in spaces], []
    for path in sweep.typed:
        if path == "training.batch_size":
            continue  # of task vectors, too: so many rows are in memory together
        if why := _describe_unread_setting(path, sweep, cells):
            lines.append(f"{path}: no trial reads it, {why}")
        elif why := _explain_idle_setting(path, sweep, strategy):
            lines.append(f"{path}: of no use, {why}")
    return lines


def _explain_idle_setting(path: str, sweep: Sweep, strategy: str) -> str | None:
    """Return why other settings leave this one without effect, None if they do not."""
    other = NEEDED_SETTINGS.get(path)
    if other and other not in sweep.axes and not get_by_path(sweep, other):
        return f"without {other}"
    match path.split("."):
        case "search", _ if strategy != "optuna":
            return f"with --strategy {strategy}: optuna searches"
        case "selection", "seeds" if not any(seed in sweep.axes["seed"] for seed in sweep.selection.seeds):
            return "no trial of this start has one of them; --seeds adds seeds"
        case "benchmark", "template" if not get_benchmark(sweep.benchmark.name).ASKS_BY_TEMPLATE:
            return f"{sweep.benchmark.name} asks without one"
    return None


def _describe_unread_setting(path: str, sweep: Sweep, cells: Sequence[tuple[str, str]]) -> str | None:
    """Return with what methods and rectifiers no trial reads a setting, and which would; None if one of them does."""
    if any(setting_has_effect(path, *cell, sweep.axes) for cell in cells):
        return None
    methods, rectifiers = (", ".join(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    if path.startswith("rectifier.") and path not in STUDY_AXIS_PATHS:
        of = f"rectifier.name {', '.join(name for name in RECTIFIERS if setting_has_effect(path, 'ga', name))}"
        of += " (rules of two gradients: with rectifier.memory=average)" * (path == "rectifier.gamma")
    else:
        of = f"method {', '.join(name for name in METHODS if setting_has_effect(path, name, 'none'))}"
    return f"with method {methods} and rectifier.name {rectifiers}; it is of {of}"


def _parse_axis(path: str, text: str, sweep: Sweep) -> Axis | None:
    """Return the axis that is typed; None for one value of what the sweep does not vary. Raises ValueError."""
    if path not in list_allowed_axis_paths():
        return None
    found = RANGE_PATTERN.fullmatch(text) if path not in STUDY_AXIS_PATHS else None
    if found:
        try:
            return validate_axis(path, Range(_parse_number(found[2]), _parse_number(found[3]), log=bool(found[1])))
        except ValueError as error:
            raise ValueError(f"{path}={text}: {str(error).removeprefix(f'{path}: ')}") from error
    values = text.split(",") if path in STUDY_AXIS_PATHS else _parse_values(text)
    if len(values) == 1 and path not in (*sweep.axes, *VECTOR_STRENGTH_PATHS) and path.split(".")[0] in SWEEP_SECTIONS:
        return None
    return validate_axis(path, values)


def _parse_number(text: str) -> float:
    try:
        return int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else float(text)
    except ValueError:
        raise ValueError("a range is LOW..HIGH or log(LOW..HIGH) with two numbers") from None


def _set_field(document: dict[str, Any], path: str, text: str) -> None:
    """Set what is no axis. Raises ValueError on an unknown field."""
    inside = {f"{section}.{name}" for section, default in SWEEP_SECTIONS.items() for name in type(default).model_fields}
    optional = {name for name, default in SWEEP_DEFAULTS.items() if default is None}  # such as `models`
    known = {*list_allowed_axis_paths(), *optional - {"fictional", "model_training"}, *inside}
    paths = sorted(one for one in known if not one.endswith("fingerprint"))
    if path not in paths:
        raise ValueError(f"{path}={text}: unknown field '{path}'; {_suggest(path, paths)}")
    section, _, name = path.rpartition(".")
    fields = document[section] if section else document
    if path == "resources.gpus":
        fields["share_gpus"], text = (True, "1") if text == "auto" else (False, text)
    fields[name] = _parse_values(text) if isinstance(fields[name], tuple) else None if text == "none" else text


def _set_backbone(sweep: Sweep, name: str) -> Sweep:
    """Return the sweep on another backbone."""
    if sweep.backbone is None:
        own = f"give a folder: {'target' if sweep.benchmark.name == 'own' else 'models'}=DIR"
        raise InputError(f"--set backbone={name}: sweep {sweep.name} has no backbone to choose; {own}")
    backbones = {backbone.name.lower(): backbone for backbone in load_backbones()}
    found = backbones.get(name.lower())
    if found is None:
        names = [backbone.name for backbone in backbones.values()]
        raise InputError(f"--set backbone={name}: unknown backbone; {suggest_name(name, names)}")
    return sweep.model_copy(
        update={
            "backbone": found,
            "title": sweep.title if found == sweep.backbone else f"{sweep.title}; here on {found.name}",
            "benchmark": sweep.benchmark.model_copy(update={"template": found.template}),
            "training": sweep.training.model_copy(update={"lr": found.lr}),
            "resources": sweep.resources.model_copy(update={"precision": found.precision}),
        }
    )


def load_backbones() -> list[Backbone]:
    """Return the backbones of all files in search_spaces/backbones/. Raise InputError if a file is wrong in any way."""
    found: list[Backbone] = []
    for module in pkgutil.iter_modules(search_spaces.backbones.__path__, "search_spaces.backbones."):
        try:
            values = vars(importlib.import_module(module.name)).values()
        except Exception as error:
            raise InputError(f"{module.name.replace('.', '/')}.py: {describe_invalid_settings(error)}") from error
        for value in (value for value in values if isinstance(value, Backbone) and value not in found):
            if value.name.lower() in (known.name.lower() for known in found):
                raise InputError(f"{module.name.replace('.', '/')}.py: another backbone is called {value.name}, too")
            found.append(value)
    return found


def filter_study_spaces(spaces: Sequence[StudySpace], filters: Sequence[str]) -> list[StudySpace]:
    """Return the parts of the spaces that pass every `FIELD=V1,V2`. Raises InputError on what no trial has."""
    kept, problems = list(spaces), ProblemCollector()
    known = [_list_values(space) for space in spaces] if filters else []
    found = [problems.collect_from(_parse_filter, item, known) for item in filters]
    problems.raise_if_any()
    for path, choices in found:
        parts = {space.study: _narrow(space, path, choices) for space in kept}
        compared = {f"{study.rpartition('/')[0]}/none" for study, part in parts.items() if part}
        baselines = compared if path.startswith("rectifier.") and path != "rectifier.name" else set()
        kept = [parts[one.study] or one for one in kept if parts[one.study] or one.study in baselines]
    if not kept:
        passed = f" that passes --only {' --only '.join(filters)}" if filters else " with these values"
        raise InputError(f"the sweep has no trial{passed}")
    return kept


def _parse_filter(item: str, known: Sequence[Mapping[str, Axis]]) -> tuple[str, dict[Any, str]]:
    """Return the path and the values of `FIELD=V1,V2`. Raises InputError on what is in no space's values."""
    path, text = _split_pair(item, "--only")
    axes = [values[path] for values in known if path in values]
    if not axes:
        raise InputError(f"--only {item}: unknown field '{path}'; {_suggest(path, sorted(set().union(*known)))}")
    values: list[Any] = []
    for axis in axes:
        if isinstance(axis, Range):
            raise InputError(f"--only {item}: {path} is a range here, {axis}; --set {path}={text} instead")
        values += axis
    spelled = sorted(set(map(format_setting_as_typed, values)))
    choices = {_normalise(choice): choice for choice in text.split(",")}
    for choice in (choice for key, choice in choices.items() if key not in map(_normalise, spelled)):
        raise InputError(f"--only {item}: no trial has {path}={choice}; {suggest_name(choice, spelled)}")
    return path, choices


def _list_values(space: StudySpace) -> dict[str, Axis]:
    """Return the values of every setting in a space by its path."""
    settings = flatten_settings(space.make_trial(space.published).model_dump())
    fixed: dict[str, Axis] = {path: (value,) for path, value in settings.items()}
    return fixed | dict(space.axes)


def _narrow(space: StudySpace, path: str, choices: Mapping[Any, str]) -> StudySpace | None:
    """Return the part of a space with one of these values, None if there is none."""
    values: Any = _list_values(space).get(path, ())
    axis = tuple(one for one in values if _normalise(format_setting_as_typed(one)) in choices)
    if not axis or path not in space.axes:
        return space if axis else None
    published = {**space.published, path: find_nearest_value(axis, space.published[path])}
    return replace(space, axes={**space.axes, path: axis}, published=published)


def flatten_settings(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted path: `{"rectifier.gamma": 0.8, ...}`."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat |= flatten_settings(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _suggest(path: str, known: Sequence[str]) -> str:
    """Return `did you mean 'training.lr'? known: ...`: settings of this name, else of this section, else sections."""
    section, _, name = path.rpartition(".")
    if same := [one for one in known if one.rpartition(".")[2] == name]:
        return suggest_name(path, same)
    inside = {one.rpartition(".")[2]: one for one in known if one.startswith(f"{section or name}.")}
    sections = dict.fromkeys(re.sub(r"\..*", ".*", one) for one in known)
    near = difflib.get_close_matches(name if inside else path, inside or known, n=1, cutoff=0.5 if inside else 0.6)
    hint = "".join(f"did you mean '{inside.get(one, one)}'? " for one in near)
    return f"{hint}known: {', '.join(inside.values() or sections)}"


def _read_settings(item: str) -> list[str]:
    """Return `[item]`, or of `@FILE` what `trainables.export --settings` wrote, as PATH=VALUE."""
    if not item.startswith("@"):
        return [item]
    import yaml

    wrong = (InputError, OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, yaml.YAMLError)
    try:
        found = parse_yaml(read_text(expand_home(item[1:])), yaml.BaseLoader)["settings"]  # 010 is ten, as typed
        texts = {path: ",".join(map(str, value)) if isinstance(value, list) else value for path, value in found.items()}
    except wrong as error:
        raise InputError(
            f"--set {item}: no file of settings (trainables.export --settings writes one): {error}"
        ) from error
    return [f"{path}={'none' if value in ('null', '~', '') else value}" for path, value in texts.items()]


def _split_pair(item: str, option: str) -> tuple[str, str]:
    path, equals, value = item.partition("=")
    if not equals or not path or not value:
        raise InputError(f"{option} {item}: write FIELD=VALUE")
    return path, value


def _parse_values(text: str) -> list[str | None]:
    return [None if part == "none" else part for part in text.split(",")]


def _normalise(text: str) -> Any:
    """Return what is equal for 0.80 and 0.8."""
    try:
        return float(text)
    except ValueError:
        return text
