"""What result.json of a trial, and of a reference evaluation, must hold to be taken for one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from trainables.config.types import Name, Time
from trainables.storage.atomic_files import read_json

FiniteNumber = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Numbers = dict[Name, FiniteNumber | None]


class _Named(BaseModel):
    name: Name


class _Benchmark(_Named):
    split: Name


class Config(BaseModel):
    """A trial's configuration, as far as commands go by it."""

    method: Name
    rectifier: _Named
    benchmark: _Benchmark
    target: dict[str, Any] = {}
    training: dict[str, Any] = {}
    seed: int = 0


class _Error(BaseModel):
    kind: str
    message: str


class Evaluation(BaseModel):
    """The evaluation of a reference model."""

    id: Name
    metrics: Numbers
    halves: list[Numbers] | None = None


class Result(Evaluation):
    """A trial's result, as far as commands go by it."""

    status: Literal["finished", "collapsed", "diverged", "failed", "out_of_memory", "lost"]
    config: Config
    started: Time
    seconds: dict[Name, FiniteNumber] = {}
    commit: Name | None = None
    versions: dict[Name, Name] = {}
    error: _Error | None = None


def read_result(path: Path, kind: type[Evaluation]) -> dict[str, Any] | None:
    """Return the result at ID/result.json of a trial or an evaluation, None unless it can be read and is of that ID."""
    found = read_valid_json(path, kind)
    return found if found and found["id"] == path.parent.name else None


def read_valid_json(path: Path, kind: type[BaseModel]) -> dict[str, Any] | None:
    """Return the JSON object in a file, None if there is none that `kind` takes."""
    try:
        found = read_json(path)
        kind.model_validate(found)
    except (ValidationError, RecursionError):
        return None
    return found
