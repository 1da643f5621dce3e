"""What result.json of a trial, and of a reference evaluation, must hold to be taken for one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainables.common.errors import InputError
from trainables.config.trial import Trial
from trainables.storage.atomic_files import CHECKSUM, read_json

Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Numbers = dict[str, Number | None]
Seconds = dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]]

SHARES = re.compile(
    r"(model_)?utility|mmlu|wmdp_\w+|\w+_(prob|rouge|truth_ratio|pvalue|ks|auc|extraction_strength|exact_memorisation)"
)
"""Metrics between 0 and 1; `forget_quality` is ln p, and others have no bounds."""
ROUNDING = 1e-6


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Error(_Part):
    kind: str
    message: str
    step: int | None = None


class _Named(_Part):
    name: str


class _Benchmark(_Named):
    split: str


class _Resources(_Part):
    ranks: int = 1
    gpus: float = 0


class _Config(_Part):
    method: str
    rectifier: _Named
    benchmark: _Benchmark
    objective: dict[str, Any] = {}
    training: dict[str, Any] = {}
    resources: _Resources = _Resources()
    task_vector: dict[str, Any] | None = None
    calibration: dict[str, Any] = {}
    seed: int = 0


class _Training(_Part):
    steps: int
    skipped: int


class _StepEvaluation(_Part):
    __pydantic_extra__: Numbers = Field(init=False)  # type: ignore[assignment]
    halves: list[Numbers] | None = None


class Result(_Part):
    """A trial's result, as far as commands go by it. What has a default is missing in results of earlier versions."""

    id: str
    status: Literal["finished", "collapsed", "stopped", "diverged", "failed", "out_of_memory", "lost"]
    config: _Config
    metrics: Numbers
    started: str
    halves: list[Numbers] | None = None
    evaluations: list[_StepEvaluation] | None = None
    calibration: dict[str, Any] | None = None
    training: _Training | None = None
    seconds: Seconds = {}
    error: _Error | None = None
    attempt: str | None = None
    chosen_step: int | None = None
    direction: str | None = None
    code: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    versions: dict[str, str | None] = {}
    topology: dict[str, Any] = {}
    files: dict[str, str] | None = None
    """SHA-256 of the trial's tables by name."""


class Evaluation(_Part):
    """The evaluation of a reference model."""

    id: str
    metrics: Numbers
    halves: list[Numbers] | None = None
    model: dict[str, Any] = {}


def read_trial(path: Path) -> dict[str, Any] | None:
    """Return the result at TRIAL/result.json, None unless it is whole and of that trial."""
    found = _read(path, Result)
    if not found or not (CHECKSUM in found or _may_be(found["config"], path.parent.name)):
        return None
    return found | {"config": _rename_pcgrad(found["config"])}


def read_evaluation(path: Path) -> dict[str, Any] | None:
    """Return the evaluation at ID/result.json, None unless it is whole and that one."""
    return _read(path, Evaluation)


def read_config(path: Path) -> dict[str, Any] | None:
    """Return the configuration at TRIAL/config.json, None if there is none that can be read."""
    found = read_json(path)
    return _rename_pcgrad(found) if found and _has_shape(found, _Config) else None


def _rename_pcgrad(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration where what earlier versions called `pcgrad` has its name of today (settings.Rectifier)."""
    rectifier = config["rectifier"]
    if rectifier["name"] != "pcgrad" or "scope" in rectifier:
        return config
    return config | {"rectifier": rectifier | {"name": "agem"}}


def _read(path: Path, kind: type[Result | Evaluation]) -> dict[str, Any] | None:
    found = read_json(path)
    if not found or not _has_shape(found, kind) or found["id"] != path.parent.name:
        return None
    measured = [found["metrics"], *(found.get("halves") or ()), *(found.get("evaluations") or ())]
    return found if CHECKSUM in found or all(map(_can_be_measured, measured)) else None


def _can_be_measured(metrics: dict[str, float | None]) -> bool:
    """Return whether every metric is within what it can be."""
    known = {name: value for name, value in metrics.items() if value is not None}
    shares = all(-ROUNDING <= known[name] <= 1 + ROUNDING for name in known if SHARES.fullmatch(name))
    return shares and -1e6 < known.get("forget_quality", 0.0) <= ROUNDING


def _has_shape(value: dict[str, Any], kind: type[_Part]) -> bool:
    try:
        kind.model_validate(value)
    except (ValidationError, RecursionError):
        return False
    return True


def _may_be(config: dict[str, Any], trial_id: str) -> bool:
    """Return whether a configuration is of that id; one with a method that is no longer here may be."""
    try:
        return Trial.model_validate(config).id() == trial_id
    except (ValidationError, InputError):
        return True
