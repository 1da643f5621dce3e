"""`--set PATH=VALUE` and `--only FIELD=V1,V2`: what a person types, checked against the configuration's fields."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
import typing
from collections.abc import Sequence
from types import UnionType
from typing import Any

from pydantic import BaseModel, ValidationError

import search_spaces.backbones
from search_spaces.schema.backbones import Backbone
from search_spaces.schema.sweep import FILES, Sweep
from trainables.common.cli import describe_invalid
from trainables.common.errors import InputError, closest, first_line
from trainables.config.trial import Trial

AXES = {
    "method": "methods",
    "rectifier.name": "rectifiers",
    "rectifier.gamma": "gammas",
    "rectifier.tau": "taus",
    "task_vector.stg": "stgs",
    "task_vector.strength": "strengths",
    "benchmark.split": "splits",
    "seed": "seeds",
}
"""Configuration path -> the sweep's field that holds its values."""

WORDS = ("method", "rectifier.name", "benchmark.split")
"""Axes whose values are words: `none` is the name of a rectifier there."""

SINGLE = ("models", "target", "tokenizer", "attention", "observe", *FILES)
"""Settings of the sweep itself."""

BACKBONE = "backbone"
"""The name of a backbone: its hub ids, template, learning rate and precision."""

FIXED = ("benchmark", "objective", "training", "task_vector", "calibration", "selection", "resources")
SLOWING = (
    "training.",
    "resources.",
    "calibration.",
    "task_vector.",
    "benchmark.limit",
    "benchmark.dialect",
    "target",
    "attention",
    "observe",
)
"""How settings begin that a trial's time depends on: what it took without them says nothing."""
HARMLESS = (*AXES, "training.lr", "training.stop_above", "resources.checkpoint_every")
"""Those of them that hardly do."""


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
            document[AXES[path]] = value.split(",") if path in WORDS else _parse_values(value)
        elif path in SINGLE:
            document[path] = _parse_value(value)
        else:
            _set_field(document, path, value)
    try:
        return Sweep.model_validate(document)
    except ValidationError as error:
        raise InputError(f"--set: {_name_as_typed(describe_invalid(error))}") from error


def _set_backbone(sweep: Sweep, name: str) -> Sweep:
    """Return the sweep on another backbone, with its template, rate and precision, which other settings override.

    It fills none of the paper's tables: those are of the sweep's own backbone.
    """
    if sweep.backbone is None:
        raise InputError(f"--set backbone={name}: sweep {sweep.name} makes its own models; give a folder: models=DIR")
    backbones = load_backbones()
    found = {backbone.name.lower(): backbone for backbone in backbones}.get(name.lower())
    if found is None:
        raise InputError(
            f"--set backbone={name}: unknown backbone; {closest(name, [backbone.name for backbone in backbones])}"
        )
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
            why = describe_invalid(error) if isinstance(error, ValidationError) else first_line(error)
            raise InputError(f"{module.name.replace('.', '/')}.py: {why}") from error
        found += [value for value in values if isinstance(value, Backbone)]
    return found


def select_trials(trials: Sequence[Trial], filters: Sequence[str]) -> list[Trial]:
    """Return the trials that pass every `FIELD=V1,V2`. Raises InputError on a field or value that no trial has."""
    chosen = list(trials)
    flat = {trial: flatten(trial) for trial in trials} if filters else {}
    known = sorted({name for fields in flat.values() for name in fields})
    for item in filters:
        path, value = _split_pair(item, "--only")
        if path not in known:
            raise InputError(f"--only {item}: unknown field '{path}'; {_suggest(path, known)}")
        spelled = {trial: _format_value(fields[path]) for trial, fields in flat.items() if path in fields}
        present = {_normalise(name) for name in spelled.values()}
        wanted = value.split(",")
        for choice in wanted:
            if _normalise(choice) not in present:
                has = sorted(set(spelled.values()))
                raise InputError(f"--only {item}: no trial has {path}={choice}; {closest(choice, has)}")
        keep = {_normalise(choice) for choice in wanted}
        chosen = [trial for trial in chosen if trial in spelled and _normalise(spelled[trial]) in keep]
    if not chosen:
        together = f" that passes --only {' --only '.join(filters)}" if filters else " with these values"
        raise InputError(f"the sweep has no trial{together}")
    return chosen


def flatten(trial: Trial) -> dict[str, Any]:
    """Return the dotted paths of a configuration: `{"rectifier.gamma": 0.8, ...}`."""
    flat: dict[str, Any] = {}

    def walk(node: dict[str, Any], prefix: str) -> None:
        for key, value in node.items():
            if isinstance(value, dict):
                walk(value, f"{prefix}{key}.")
            else:
                flat[prefix + key] = value

    walk(trial.model_dump(), "")
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


def _set_field(document: dict[str, Any], path: str, value: str) -> None:
    if path not in list_settable_paths():
        raise InputError(f"--set {path}={value}: unknown field '{path}'; {_suggest(path, list_settable_paths())}")
    section, name = path.split(".", 1)
    kind = typing.cast(type[BaseModel], Sweep.model_fields[section].annotation).model_fields[name].annotation
    document[section][name] = _parse_values(value) if _is_tuple(kind) else _parse_value(value)


def _suggest(path: str, known: Sequence[str]) -> str:
    """Return `did you mean 'training.lr'? known: ...`, of the path's section if there is one.

    A field whose own name was typed, or whose name is the first letters of what was typed (learning_rate) or has it as
    a word (steps), is meant before one that is merely spelt alike.
    """
    section, _, name = path.rpartition(".")
    inside = [one for one in known if one.startswith(f"{section}.")]
    near = inside or known
    names = {one: one.rpartition(".")[2] for one in near}
    letters = "".join(word[0] for word in name.split("_") if word) if "_" in name else name
    meant = [one for one, own in names.items() if own == name] or [one for one, own in names.items() if own == letters]
    meant = meant or [one for one, own in names.items() if name in own.split("_")]
    if not meant and inside:
        alike = difflib.get_close_matches(name, names.values(), n=1, cutoff=0.5)
        meant = [one for one, own in names.items() if own in alike]
    sections = difflib.get_close_matches(section, {one.rpartition(".")[0] for one in meant}, n=1)
    meant = [one for one in meant if one.rpartition(".")[0] in sections] or meant
    if not meant and not inside:
        return closest(path, near)
    hint = f"did you mean {' or '.join(map(repr, meant))}? " if meant else ""
    return f"{hint}known: {', '.join(near)}"


def _is_tuple(kind: Any) -> bool:
    options = typing.get_args(kind) if typing.get_origin(kind) in (UnionType, typing.Union) else (kind,)
    return any(typing.get_origin(option) is tuple for option in options)


def _split_pair(item: str, option: str) -> tuple[str, str]:
    path, equals, value = item.partition("=")
    if not equals or not path or not value:
        raise InputError(f"{option} {item}: write FIELD=VALUE")
    return path, value


def _parse_values(text: str) -> list[str | None]:
    return [_parse_value(part) for part in text.split(",")]


def _parse_value(text: str) -> str | None:
    return None if text == "none" else text


def _name_as_typed(problems: str) -> str:
    """Return `methods.0: ...` as the person typed it: `method: ...`."""
    typed = {field: path for path, field in AXES.items()}
    return re.sub(r"\b(\w+)\.\d+:", lambda match: f"{typed.get(match[1], match[1])}:", problems)


def _format_value(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _normalise(text: str) -> Any:
    """Return what is equal for 0.80 and 0.8."""
    try:
        return float(text)
    except ValueError:
        return text
