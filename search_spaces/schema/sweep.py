"""The type of a sweep, its axes, and how sweeps are found: each module of search_spaces/ holds one as SWEEP."""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from search_spaces.schema.backbones import Backbone
from trainables.config import settings
from trainables.config.method_tables import MethodName
from trainables.config.settings import FrozenSettings
from trainables.config.trial import Rectifier, Trial
from trainables.config.types import Count, PathOrId, Positive, Share, ShortText

STUDY_AXIS_PATHS = ("benchmark.split", "method", "rectifier.name")
"""Each combination of values of these axes is one Optuna study. They take words, never ranges."""
SECTIONS: dict[str, type[FrozenSettings]] = {
    "rectifier": Rectifier,
    "objective": settings.Objective,
    "training": settings.Training,
    "task_vector": settings.TaskVector,
}
NON_AXIS_PATHS = {"training.betas", "objective.idk", "objective.idk_fingerprint"}
"""One value is two numbers; a plan names a file's content once for all trials."""


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, both included; whole ones if both ends are. `log`: drawn on a log scale."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"the range {self} is empty; write the smaller number first")
        if self.log and self.low <= 0:
            raise ValueError(f"the range {self} begins where there is no logarithm; begin above 0")

    @property
    def has_whole_numbers(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def __contains__(self, value: object) -> bool:
        if not (isinstance(value, int | float) and self.low <= value <= self.high):
            return False
        return not self.has_whole_numbers or float(value).is_integer()

    def __str__(self) -> str:
        ends = f"{self.low:g}..{self.high:g}"
        return f"log({ends})" if self.log else ends


Axis = tuple[Any, ...] | Range


@cache
def list_allowed_axis_paths() -> tuple[str, ...]:
    """Return the configuration paths that may be axes: what a trial is measured by is the same in a whole sweep."""
    inside = {f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.model_fields}
    return tuple(sorted({"method", "seed", "benchmark.split", *inside} - NON_AXIS_PATHS))


@cache
def make_setting_type_adapter(path: str) -> TypeAdapter[Any]:
    """Return the type of a setting of trials."""
    section, _, name = path.rpartition(".")
    sections: dict[str, Any] = {"benchmark": settings.Benchmark, **SECTIONS}
    field = sections.get(section, Trial).model_fields[name]
    annotated: Any = Annotated
    return TypeAdapter(annotated[(field.annotation, *field.metadata, field)])


def validate_axis_value(path: str, value: Any) -> Any:
    """Return one value of an axis in its field's type. Raises ValueError that repeats it."""
    try:
        return make_setting_type_adapter(path).validate_python(value)
    except ValidationError as error:
        words = dict.fromkeys(item["msg"].removeprefix("Value error, ") for item in error.errors())
        raise ValueError(f"{path}: {' or '.join(words)} (got {value!r})") from error


def validate_axis(path: str, axis: Any) -> Axis:
    """Return an axis with its values in their field's type. Raises ValueError with field, value, what is accepted."""
    if path not in list_allowed_axis_paths():
        raise ValueError(f"{path} cannot be an axis; known: {', '.join(list_allowed_axis_paths())}")
    if isinstance(axis, Range):
        ends = [validate_axis_value(path, end) for end in (axis.low, axis.high)]
        if any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
            raise ValueError(f"{path}: takes words, which have no range (got {axis}); write its values")
        return Range(*ends, log=axis.log) if all(isinstance(end, int) for end in ends) else axis
    if isinstance(axis, str) or not isinstance(axis, Sequence) or not axis:
        raise ValueError(f"{path}: write a tuple of values or Range(LOW, HIGH) (got {axis!r})")
    return tuple(validate_axis_value(path, value) for value in axis)


PAPER_GAMMA_GRID = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
TAUS = (0.001, 0.005, 0.01, 0.1, 1.0, 10.0, 100.0, None)
SMALL_GAMMA_GRID = (0.05, 0.8)
SMALL_TAU_GRID = (None, 1.0)
PAPER_TRU_STRENGTH_GRID = (0.50, 0.60, 0.65, 0.70, 0.75, 0.80, 0.85)
OWN_SWEEP_FILE_FIELDS = ("forget", "retain", "eval", "requests")
"""Settings of the sweep own that name files, and a folder of files."""
SMALL_MODEL_TRU_STRENGTHS = (4.0, 8.0, 12.0, 16.0, 24.0)
DEFAULT_AXES: dict[str, Axis] = {
    "rectifier.name": ("none", "gru"),
    "rectifier.gamma": SMALL_GAMMA_GRID,
    "rectifier.tau": SMALL_TAU_GRID,
    "task_vector.stg": PAPER_TRU_STRENGTH_GRID,
    "seed": (0,),
}


class PublishedSetting(FrozenSettings):
    """A published setting for some cells; a later one that fits a cell overrides an earlier one.

    `gamma` and `tau` are GRU's, `strength` is the stg of TRU or the strength of TV.
    """

    method: MethodName | None = None
    split: str | None = None
    gamma: float | None = None
    tau: float | None = None
    strength: float | None = None
    normalise: settings.NormaliseUnit | None = None


class SmallModelRecipe(FrozenSettings):
    """Making of models that no folder holds; with `pretraining` a base model is trained first and then fine-tuned."""

    architecture: tuple[tuple[str, bool | int | float], ...]
    vocabulary: int
    finetuning: settings.Training
    pretraining: settings.Training | None = None
    pretraining_configs: tuple[str, ...] = ()
    general_configs: tuple[str, ...] = ("real_authors", "world_facts")


class FictionalAuthorsSettings(FrozenSettings):
    """Fictional authors in TOFU's format, made from a seed: see trainables.data.fictional."""

    authors: int
    questions: int
    forget_percent: tuple[int, ...] = (10,)
    seed: int = 0


class OptunaSearchSettings(FrozenSettings):
    """How `--strategy optuna` searches. `floor`: the share of the target model's utility that a trial is to keep."""

    sampler: Literal["tpe", "gp", "random"] = "tpe"
    floor: Share | None = None
    goals: tuple[ShortText, ...] = ()
    """Metrics that are searched for, retention among them (asked for by `benchmark.measures`); none: the goals."""


class StressTestSettings(FrozenSettings):
    """Attacks on the chosen trials at the sweep's end (trainables.robustness.attacks). `lr`: of relearning."""

    attacks: tuple[ShortText, ...] = ()
    lr: Positive | None = None


class ReferenceModelSettings(FrozenSettings):
    """`seeds`: retain models that are trained, of seeds 0, 1, ...: the noise of retraining (docs/measuring.md)."""

    seeds: Annotated[int, Field(ge=1, le=100)] = 1


class Sweep(FrozenSettings):
    """A named sweep: its axes, fixed settings, and where models and data come from.

    One study for each split, method and rectifier; its points are the product of the other axes that these read.
    """

    name: str
    title: str
    strategy: Literal["grid", "paper", "optuna"] = "grid"
    """What `--strategy` is where it is not given."""
    trials: Count = 20
    """Trials of each study with `optuna`, where `--trials` says nothing else."""
    axes: dict[str, Any]
    """Values or a Range by configuration path: `{"method": ("npo",), "training.lr": (1e-5, 3e-5)}`."""
    varied: tuple[str, ...] = ()
    """GRU's points lie on this axis alone, its other setting being the published one: `paper` is the whole line."""
    searched: tuple[str, ...] = ()
    """Axes that the published setting says one value of, the sweep's own: `paper` takes that alone."""
    typed: tuple[str, ...] = ()
    """What `--set` gave: axes, of which no strategy takes other values, and the fields that it changed."""
    published: tuple[PublishedSetting, ...] = (PublishedSetting(gamma=0.8, tau=None),)
    benchmark: settings.Benchmark = settings.Benchmark()
    objective: settings.Objective = settings.Objective()
    training: settings.Training = settings.Training()
    task_vector: settings.TaskVector = settings.TaskVector()
    calibration: settings.Calibration = settings.Calibration()
    selection: settings.Selection = settings.Selection()
    """Rule for the trial of a study that tables show and whose weights `--keep best` keeps."""
    search: OptunaSearchSettings = OptunaSearchSettings()
    stress: StressTestSettings = StressTestSettings()
    references: ReferenceModelSettings = ReferenceModelSettings()
    export: bool = False
    """The sweep ends with the chosen trial's model in a folder of its own."""
    resources: settings.Resources = settings.Resources()
    observe: Count | None = None
    """Steps between measurements of the angle to the retain gradient (Trial.observe)."""
    models: PathOrId | None = None
    """A folder with `full`, `retain95`, ... and/or `base`; none: every model is made."""
    target: PathOrId | None = None
    """Another target model than `models/full`."""
    forget: PathOrId | None = None
    """Of the sweep own: the file of rows to forget; `retain` and `eval` likewise (benchmarks.own.row_files)."""
    retain: PathOrId | None = None
    eval: PathOrId | None = None
    requests: PathOrId | None = None
    """Of the sweep own, in the place of `forget`: a folder of forget files, each unlearned after the one before."""
    baseline: PathOrId | None = None
    """Of the sweep own: a model that never saw the rows to forget, which is evaluated for comparison."""
    tokenizer: PathOrId | None = None
    """Another place for the tokenizer of every model that is found, where theirs is missing."""
    attention: settings.Attention | None = None
    """Another implementation of attention for them."""
    model_training: SmallModelRecipe | None = None
    backbone: Backbone | None = None
    """Where models come from that no folder holds; a sweep has this or `model_training`."""
    fictional: FictionalAuthorsSettings | None = None

    @field_validator("axes", mode="before")
    @classmethod
    def _check_axes(cls, axes: Any) -> dict[str, Axis]:
        if not isinstance(axes, Mapping) or "method" not in axes:
            raise ValueError('write a mapping of paths to values: {"method": ("npo",), "training.lr": (1e-5, 3e-5)}')
        return {path: validate_axis(path, axis) for path, axis in {**DEFAULT_AXES, **axes}.items()}

    @model_validator(mode="after")
    def _fill_splits(self) -> Self:
        self.axes.setdefault("benchmark.split", (self.benchmark.split,))
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        return self.axes["benchmark.split"]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a validated copy with other settings. Raise ValueError if there is none of a name."""
        for name in set(update or {}) - set(type(self).model_fields):
            raise ValueError(f"a sweep has no setting '{name}'; it has {', '.join(type(self).model_fields)}")
        return type(self).model_validate({**dict(self), **(update or {})})


def list_sweep_names() -> list[str]:
    folder = str(Path(__file__).parents[1])
    return sorted(module.name for module in pkgutil.iter_modules([folder]) if not module.ispkg)


def import_sweep(name: str) -> Sweep:
    """Return one of `list_sweep_names()`. Raise what its file does, or ValueError, if it is wrong."""
    sweep = getattr(importlib.import_module(f"search_spaces.{name}"), "SWEEP", None)
    if not isinstance(sweep, Sweep):
        raise ValueError("it has no SWEEP (search_spaces.schema.sweep.Sweep)")
    if sweep.name != name:
        raise ValueError(f"its SWEEP is called '{sweep.name}'; a sweep's name is its file's, so give name=\"{name}\"")
    return sweep
