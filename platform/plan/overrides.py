"""`--set PATH=VALUE` and `--only FIELD=V1,V2`: what a person types, checked against the configuration's fields."""

from __future__ import annotations

import importlib
import pkgutil
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

import search_spaces.backbones
from platform.plan.space import Space, nearest, spell_setting
from search_spaces.schema.axes import STUDY, Axis, Range, axis_paths, check_axis
from search_spaces.schema.backbones import Backbone
from search_spaces.schema.settings_with_effect import has_effect, list_without_effect
from search_spaces.schema.sweep import FILES, Sweep
from trainables.common.cli import describe_invalid
from trainables.common.errors import InputError, closest
from trainables.config.method_tables import RECTIFIERS, SETTINGS

RANGE = re.compile(r"(log\()?([^,()]*?)\.\.([^,()]*?)(?(1)\))")
SHARED = ("resources", "selection", "search", "stress", "calibration")  # the same in all trials of a sweep
SINGLE = ("models", "target", "baseline", "tokenizer", "attention", "observe", *FILES)
"""Settings of the sweep itself."""

BACKBONE = "backbone"  # its hub ids, template, learning rate and precision

FIXED = ("benchmark", "objective", "training", "task_vector", "calibration", "selection", "search", "stress")
FIXED += ("resources",)
STRENGTHS = ("task_vector.stg", "task_vector.strength")
SLOWING = ("training.", "resources.", "calibration.", "task_vector.", "target", "attention", "observe")
SLOWING += ("benchmark.limit", "benchmark.dialect")
"""Beginnings of the settings that a trial's time depends on: the measured time is of trials without them."""
HARMLESS = ("training.lr", "training.stop_above", "resources.checkpoint_every", *STRENGTHS)
"""Settings among them that hardly change the time."""


def apply(sweep: Sweep, settings: Sequence[str]) -> Sweep:
    """Return the sweep with every `PATH=VALUE` set. Several values or a range make any setting an axis.

    On a setting that is an axis already, the values replace its own. Raises InputError with every problem.
    """
    pairs = [_split_pair(setting, "--set") for setting in settings]
    for value in (value for path, value in pairs if path == BACKBONE):
        sweep = _set_backbone(sweep, value)
    document = sweep.model_dump()
    document["axes"], problems = dict(sweep.axes), []
    if any(path.startswith(SLOWING) and path not in HARMLESS for path, _ in pairs):
        document["trial_seconds"] = None
    axes: dict[str, str] = {}
    typed: dict[str, str] = {}
    for path, text in pairs:
        try:
            if path in typed and path in axis_paths() and re.search(r",|\.\.", f"{typed[path]} {text}"):
                raise ValueError(f"{path}: set twice, to {typed[path]} and {text}; write all its values once")
            typed[path] = text
            axis = _parse_axis(path, text, sweep)
            alone = path in (*STUDY, *STRENGTHS)  # other methods have no such field
            fixed = axis is None or (not alone and path.split(".")[0] in FIXED and "," not in text)
            if fixed and path != BACKBONE and not isinstance(axis, Range):
                _set_field(document, path, text)  # trials that do not read an axis have the field, too
            if axis is not None:
                axes[path], document["axes"][path] = text, axis
        except ValueError as error:
            problems.append(str(error))
    document["searched"] = tuple(path for path in document["searched"] if path not in axes)
    if document["varied"]:  # a typed axis of gamma or tau multiplies the one that the sweep varies alone
        document["varied"] += tuple(path for name in SETTINGS if (path := f"rectifier.{name}") in axes)
    if "benchmark.split" in axes and not set(document["axes"]["benchmark.split"]) & set(sweep.splits):
        document["tables"] = ()  # the paper has none of these splits
    changed = _validate(document, problems)
    for path in (path for path in list_without_effect(changed.axes) if path in axes):
        methods, names = ", ".join(changed.axes["method"]), ", ".join(changed.axes["rectifier.name"])
        raise InputError(
            f"--set {path}={axes[path]}: an axis that no trial reads, with method {methods} and rectifier.name {names}"
        )
    cells = [(method, name) for method in changed.axes["method"] for name in changed.axes["rectifier.name"]]
    rules = any("memory" in RECTIFIERS[name].takes for _, name in cells)
    if rules and (path := "rectifier.gamma") in axes and not any(has_effect(path, *one, changed.axes) for one in cells):
        raise InputError(f"--set {path}={axes[path]}: only rectifier.memory=average reads it here")
    return changed


def _validate(document: dict[str, Any], problems: list[str]) -> Sweep:
    """Return the changed sweep. Raises InputError with these problems and those of its fixed settings."""
    try:
        changed = Sweep.model_validate(document)
        if not problems:
            return changed
    except ValidationError as error:
        problems.append(re.sub(r"([a-z_])\.[0-9]+: ", r"\1: ", describe_invalid(error)))
    raise InputError(f"--set: {'; '.join(problems)}")


def _parse_axis(path: str, text: str, sweep: Sweep) -> Axis | None:
    """Return what is typed for an axis; None for one value of a setting that the sweep does not vary.

    Raises ValueError with field, value and what is accepted.
    """
    if path not in axis_paths():
        return None
    found = RANGE.fullmatch(text) if path not in STUDY else None
    if found:
        try:
            return check_axis(path, Range(_parse_number(found[2]), _parse_number(found[3]), log=bool(found[1])))
        except ValueError as error:
            raise ValueError(f"{path}={text}: {str(error).removeprefix(f'{path}: ')}") from error
    values = text.split(",") if path in STUDY else _parse_values(text)
    if len(values) == 1 and path not in (*sweep.axes, *STRENGTHS) and path.split(".")[0] in Sweep.model_fields:
        return None
    return check_axis(path, values)


def _parse_number(text: str) -> float:
    try:
        return int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else float(text)
    except ValueError:
        raise ValueError("a range is LOW..HIGH or log(LOW..HIGH) with two numbers") from None


def _set_field(document: dict[str, Any], path: str, text: str) -> None:
    """Set what is no axis. Raises InputError on an unknown field."""
    if path not in (paths := list_settable_paths()):
        raise InputError(f"--set {path}={text}: unknown field '{path}'; {_suggest(path, paths)}")
    section, _, name = path.rpartition(".")
    fields = document[section] if section else document
    several = isinstance(fields[name], tuple)
    if "," in text and section in SHARED and not several:
        raise ValueError(f"{path}={text}: one value for a whole sweep, so that its trials compare")
    fields[name] = _parse_values(text) if several else _parse_value(text)


def split_backbones(settings: Sequence[str]) -> list[list[str]]:
    """Return the settings of one sweep for each backbone that `backbone=A,B` names: models and rows are its own."""
    found: list[list[str]] = [[]]
    for setting in settings:
        path, _, names = setting.partition("=")
        each = [f"{path}={name}" for name in names.split(",")] if path == BACKBONE else [setting]
        found = [[*before, one] for before in found for one in each]
    return found


def _set_backbone(sweep: Sweep, name: str) -> Sweep:
    """Return the sweep on another backbone, with its template, rate and precision, which other settings override.

    It fills none of the paper's tables: those are of the sweep's own backbone.
    """
    if sweep.backbone is None:
        raise InputError(f"--set backbone={name}: sweep {sweep.name} makes its own models; give a folder: models=DIR")
    backbones = {backbone.name.lower(): backbone for backbone in load_backbones()}
    found = backbones.get(name.lower())
    if found is None:
        names = [backbone.name for backbone in backbones.values()]
        raise InputError(f"--set backbone={name}: unknown backbone; {closest(name, names)}")
    return sweep.model_copy(
        update={
            "backbone": found,
            "title": sweep.title if found == sweep.backbone else f"{sweep.title}; here on {found.name}",
            "tables": sweep.tables if found == sweep.backbone else (),
            "benchmark": sweep.benchmark.model_copy(update={"template": found.template}),
            "training": sweep.training.model_copy(update={"lr": found.lr}),
            "resources": sweep.resources.model_copy(update={"precision": found.precision}),
        }
    )


def load_backbones() -> list[Backbone]:
    """Return the backbones of all files in search_spaces/backbones/. Raise InputError if a file is wrong in any way."""
    found = []
    for module in pkgutil.iter_modules(search_spaces.backbones.__path__, "search_spaces.backbones."):
        try:
            values = vars(importlib.import_module(module.name)).values()
        except Exception as error:
            raise InputError(f"{module.name.replace('.', '/')}.py: {describe_invalid(error)}") from error
        found += [value for value in values if isinstance(value, Backbone)]
    return found


def select_spaces(spaces: Sequence[Space], filters: Sequence[str]) -> list[Space]:
    """Return the parts of the spaces that pass every `FIELD=V1,V2`. Raises InputError on what no trial has."""
    flat = [flatten_settings(space.make(space.published).model_dump()) for space in spaces if filters]
    known = sorted(set().union(*flat))
    limits: list[tuple[str, set[Any]]] = []
    for item in filters:
        path, value = _split_pair(item, "--only")
        if path not in known:
            raise InputError(f"--only {item}: unknown field '{path}'; {_suggest(path, known)}")
        axes: list[Any]
        axes = [space.axes.get(path, (one[path],)) for space, one in zip(spaces, flat, strict=True) if path in one]
        for axis in axes:
            if isinstance(axis, Range):
                raise InputError(f"--only {item}: {path} is a range here, {axis}; --set {path}={value} instead")
        texts = {spell_setting(one): _normalise(spell_setting(one)) for axis in axes for one in axis}
        for choice in value.split(","):
            if _normalise(choice) not in texts.values():
                raise InputError(f"--only {item}: no trial has {path}={choice}; {closest(choice, sorted(texts))}")
        limits.append((path, {_normalise(choice) for choice in value.split(",")}))
    narrowed = [_narrow(space, one, limits) for space, one in zip(spaces, flat, strict=True)] if filters else spaces
    chosen = [space for space in narrowed if space]
    if not chosen:
        together = f" that passes --only {' --only '.join(filters)}" if filters else " with these values"
        raise InputError(f"the sweep has no trial{together}")
    return chosen


def _narrow(space: Space, settings: Mapping[str, Any], limits: Sequence[tuple[str, set[Any]]]) -> Space | None:
    """Return the part of a space with these values, None if there is none. `settings` are of one of its trials."""
    axes, published = dict(space.axes), dict(space.published)
    for path, keep in limits:
        values: Any = axes.get(path, (settings.get(path),))
        axis = tuple(one for one in values if _normalise(spell_setting(one)) in keep)
        if not axis or path not in settings:
            return None
        if path in axes:
            axes[path], published[path] = axis, nearest(axis, published[path])
    return replace(space, axes=axes, published=published)


def flatten_settings(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted path: `{"rectifier.gamma": 0.8, ...}`."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat |= flatten_settings(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def list_settable_paths() -> list[str]:
    """Return every path that --set takes."""
    paths = {*axis_paths(), *SINGLE, BACKBONE}
    for field in FIXED:
        section = typing.cast(type[BaseModel], Sweep.model_fields[field].annotation)
        paths |= {f"{field}.{name}" for name in section.model_fields}
    return sorted(path for path in paths if not path.endswith("fingerprint"))


def _suggest(path: str, known: Sequence[str]) -> str:
    """Return `did you mean 'training.lr'? known: ...`: settings of this name, else of this section, else all."""
    section, _, name = path.rpartition(".")
    same = [one for one in known if one.rpartition(".")[2] == name]
    inside = [one for one in known if one.startswith(f"{section}.")]
    return f"known: {', '.join(inside)}" if inside and not same else closest(path, same or known)


def _split_pair(item: str, option: str) -> tuple[str, str]:
    path, equals, value = item.partition("=")
    if not equals or not path or not value:
        raise InputError(f"{option} {item}: write FIELD=VALUE")
    return path, value


def _parse_value(text: str) -> str | None:
    return None if text == "none" else text


def _parse_values(text: str) -> list[str | None]:
    return [_parse_value(part) for part in text.split(",")]


def _normalise(text: str) -> Any:
    """Return what is equal for 0.80 and 0.8."""
    try:
        return float(text)
    except ValueError:
        return text
