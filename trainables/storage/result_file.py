"""What result.json of a trial, and of a reference evaluation, must hold to be taken for one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainables.storage.atomic_files import read_json

Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Numbers = dict[str, Number | None]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Named(_Part):
    name: str


class _Benchmark(_Named):
    split: str


class _Config(_Part):
    method: str
    rectifier: _Named
    benchmark: _Benchmark
    seed: int = 0


class _Error(_Part):
    kind: str
    message: str


class Evaluation(_Part):
    """The evaluation of a reference model."""

    id: str
    metrics: Numbers
    halves: list[Numbers] | None = None


class Result(Evaluation):
    """A trial's result, as far as commands go by it."""

    status: Literal["finished", "collapsed", "stopped", "diverged", "failed", "out_of_memory", "lost"]
    config: _Config
    started: str
    seconds: dict[str, Number] = {}
    error: _Error | None = None


def read_trial(path: Path) -> dict[str, Any] | None:
    """Return the result at TRIAL/result.json, None unless it can be read and is of that trial."""
    return _read(path, Result)


def read_evaluation(path: Path) -> dict[str, Any] | None:
    """Return the evaluation at ID/result.json, None unless it can be read and is that one."""
    return _read(path, Evaluation)


def read_config(path: Path) -> dict[str, Any] | None:
    """Return the configuration at TRIAL/config.json, None if there is none that can be read."""
    found = read_json(path)
    return found if found and _has_shape(found, _Config) else None


def _read(path: Path, kind: type[Evaluation]) -> dict[str, Any] | None:
    found = read_json(path)
    return found if found and _has_shape(found, kind) and found["id"] == path.parent.name else None


def _has_shape(value: dict[str, Any], kind: type[_Part]) -> bool:
    try:
        kind.model_validate(value)
    except (ValidationError, RecursionError):
        return False
    return True
