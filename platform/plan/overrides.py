"""`--set PATH=VALUE` and `--only FIELD=V1,V2`: what a person types, checked against the configuration's fields."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
import typing
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any

from pydantic import BaseModel, ValidationError

import search_spaces.backbones
from search_spaces.schema.backbones import Backbone
from search_spaces.schema.sweep import FILES, Sweep
from trainables.common.cli import describe_invalid
from trainables.common.errors import InputError, closest
from trainables.config.trial import Trial

AXES = {
    "method": "methods",
    "rectifier.name": "rectifiers",
    "rectifier.gamma": "gammas",
    "rectifier.tau": "taus",
    "task_vector.stg": "stgs",
    "task_vector.strength": "strengths",
    "task_vector.normalise": "normalises",
    "benchmark.split": "splits",
    "seed": "seeds",
}
"""Configuration path -> the sweep's field that holds its values."""

WORDS = ("method", "rectifier.name", "benchmark.split", "task_vector.normalise")
"""Axes whose values are words: `none` is the name of a rectifier there."""

SINGLE = ("models", "target", "tokenizer", "attention", "observe", *FILES)
"""Settings of the sweep itself."""

BACKBONE = "backbone"
"""The name of a backbone: its hub ids, template, learning rate and precision."""

FIXED = ("benchmark", "objective", "training", "task_vector", "calibration", "selection", "resources")
SLOWING = ("training.", "resources.", "calibration.", "task_vector.", "target", "attention", "observe")
SLOWING += ("benchmark.limit", "benchmark.dialect")
"""Beginnings of the settings that a trial's time depends on: the measured time is of trials without them."""
HARMLESS = (*AXES, "training.lr", "training.stop_above", "resources.checkpoint_every")
"""Settings among them that hardly change the time."""


def apply(sweep: Sweep, settings: Sequence[str]) -> Sweep:
    """Return the sweep with every `PATH=VALUE` set; on an axis, comma-separated values replace its grid."""
    pairs = [_split_pair(setting, "--set") for setting in settings]
    for value in (value for path, value in pairs if path == BACKBONE):
        sweep = _set_backbone(sweep, value)
    document = sweep.model_dump()
    if any(path.startswith(SLOWING) and path not in HARMLESS for path, _ in pairs):
        document["trial_seconds"] = None
    for path, value in pairs:
        if path == BACKBONE:
            continue
        if path in AXES:
            document[AXES[path]] = values = value.split(",") if path in WORDS else _parse_values(value)
            if path == "task_vector.normalise" and len(values) == 1:  # TV has the field, too
                document["task_vector"]["normalise"] = value
            if path == "benchmark.split" and not set(values) & set(sweep.splits):
                document["tables"] = ()  # the paper has none of these splits
        elif path in SINGLE:
            document[path] = _parse_value(value)
        elif path in (paths := list_settable_paths()):
            section, name = path.split(".", 1)
            kind = typing.cast(type[BaseModel], Sweep.model_fields[section].annotation).model_fields[name].annotation
            document[section][name] = _parse_values(value) if _is_tuple(kind) else _parse_value(value)
        else:
            raise InputError(f"--set {path}={value}: unknown field '{path}'; {_suggest(path, paths)}")
    try:
        return Sweep.model_validate(document)
    except ValidationError as error:
        typed = {field: path for path, field in AXES.items()}  # `methods.0: ...` was typed as `method`
        problems = re.sub(r"\b(\w+)\.\d+:", lambda match: f"{typed.get(match[1], match[1])}:", describe_invalid(error))
        raise InputError(f"--set: {problems}") from error


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


def select_trials(trials: Sequence[Trial], filters: Sequence[str]) -> list[Trial]:
    """Return the trials that pass every `FIELD=V1,V2`. Raises InputError on a field or value that no trial has."""
    chosen = list(trials)
    flat = {trial: flatten_settings(trial.model_dump()) for trial in trials} if filters else {}
    known = sorted(set().union(*flat.values()))
    for item in filters:
        path, value = _split_pair(item, "--only")
        if path not in known:
            raise InputError(f"--only {item}: unknown field '{path}'; {_suggest(path, known)}")
        values = {trial: fields[path] for trial, fields in flat.items() if path in fields}
        texts = {
            key: str(one).lower() if one is None or isinstance(one, bool) else str(one) for key, one in values.items()
        }
        normalised = {trial: _normalise(text) for trial, text in texts.items()}
        for choice in value.split(","):
            if _normalise(choice) not in normalised.values():
                known_values = closest(choice, sorted(set(texts.values())))
                raise InputError(f"--only {item}: no trial has {path}={choice}; {known_values}")
        keep = {_normalise(choice) for choice in value.split(",")}
        chosen = [trial for trial in chosen if normalised.get(trial) in keep]
    if not chosen:
        together = f" that passes --only {' --only '.join(filters)}" if filters else " with these values"
        raise InputError(f"the sweep has no trial{together}")
    return chosen


def flatten_settings(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted path: `{"rectifier.gamma": 0.8, ...}`."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat |= flatten_settings(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def list_settable_paths() -> list[str]:
    """Return every path that --set takes."""
    paths = [*AXES, *SINGLE, BACKBONE]
    for field in FIXED:
        section = typing.cast(type[BaseModel], Sweep.model_fields[field].annotation)
        paths += [f"{field}.{name}" for name in section.model_fields if f"{field}.{name}" not in AXES]
    return sorted(path for path in paths if not path.endswith("fingerprint"))


def parse_seeds(typed: str) -> str:
    """Return `--seeds` as a setting. Raises InputError naming what is no seed."""
    for part in typed.split(","):
        if not re.fullmatch(r"\s*[0-9]+\s*", part):
            raise InputError(f"--seeds {typed}: '{part}' is no whole number from 0 on; write 0,1,2")
    return f"seed={typed}"


def _suggest(path: str, known: Sequence[str]) -> str:
    """Return `did you mean 'training.lr'? known: ...`, of the path's section if there is one."""
    section, _, name = path.rpartition(".")
    names = {one: one.rpartition(".")[2] for one in known}
    inside = [one for one in known if one.startswith(f"{section}.")] or known
    same = [one for one in known if names[one] == name]
    alike = difflib.get_close_matches(name, [names[one] for one in inside], n=1, cutoff=0.6)
    similar = difflib.get_close_matches(path, same, n=1, cutoff=0.0) or [one for one in inside if names[one] in alike]
    hint = f"did you mean {' or '.join(map(repr, similar))}? " if similar else ""
    return f"{hint}known: {', '.join(inside)}"


def _is_tuple(kind: Any) -> bool:
    options = typing.get_args(kind) if typing.get_origin(kind) in (UnionType, typing.Union) else (kind,)
    return any(typing.get_origin(option) is tuple for option in options)


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
