"""The configuration of a trial, and its id. Nothing here imports torch."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from trainables.common.errors import InputError
from trainables.common.fingerprints import hash_json
from trainables.config import settings
from trainables.config.method_tables import GAMMA_AND_TAU, METHODS, RECTIFIERS, RETAIN_PASS, MethodName, RectifierName
from trainables.config.settings import FrozenSettings
from trainables.config.types import Count, Positive, Seed, Share

PATHS_IN_EVERY_LABEL = ("method", "benchmark.split", "rectifier.name", "rectifier.gamma", "rectifier.tau", "seed")
PATHS_IN_EVERY_LABEL += ("task_vector.stg", "task_vector.strength", "task_vector.normalise")
"""Settings that every trial's name tells."""
EARLIER_TRIAL_PREFIX = "trial:"
"""Start of the fingerprint of a model that another trial leaves; its id comes after it."""
PLANNING_RESOURCE_FIELDS = ("checkpoint_every", "gpu_memory", "gpu_name", "share_gpus")
"""Resources that change no number, and so no id."""


class Rectifier(FrozenSettings):
    """Change of the objective's gradient before the optimizer: a name of RECTIFIERS.

    `gamma` is the weight of the new retain gradient in the moving average (paper eq. 9); none means no average,
    the same as 1. `tau` is the clipping norm (eq. 10); none means no clipping.
    """

    name: RectifierName = "none"
    gamma: Share | None = None
    tau: Positive | None = None
    scope: Literal["global", "tensor"] | None = None
    """What a rule of two gradients decides on: the whole gradient, or each tensor for itself; none: as published."""
    memory: Literal["current", "average"] | None = None
    """Its retain gradient: that of the step, or the moving average of `gamma`; none: the average if gamma is given."""
    kappa: Positive | None = None
    """Of CAGrad: how far it leaves the mean gradient, as a share of that; none: 0.5."""
    ratio: float | None = Field(default=None, ge=0, lt=1)
    """Of HAMU: the required gain; none: 0.5."""
    parts: Count | None = None
    """Of GEM and OrthoGrad: parts of a step's retain rows, each with a gradient of its own; none: 4."""

    @model_validator(mode="before")
    @classmethod
    def _fill_rule(cls, value: Any) -> Any:
        """State scope and memory of a rule, and no gamma without a moving average."""
        if not isinstance(value, dict):
            return value
        row = RECTIFIERS.get(str(value.get("name")))
        if row is None or "memory" not in row.takes:
            return value
        memory = value.get("memory") or ("current" if value.get("gamma") is None else "average")
        filled = value | {"memory": memory, "gamma": value.get("gamma") if memory == "average" else None}
        return filled | ({"scope": value.get("scope") or row.scope} if "scope" in row.takes else {})

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        row = RECTIFIERS[self.name]
        stated = set(self.model_dump(exclude={"name"}, exclude_none=True))
        if not set(row.requires) <= stated <= set(row.takes):
            needed = f"; needed: {', '.join(row.requires)}" if row.requires else ""
            raise ValueError(f"rectifier '{self.name}' takes {', '.join(row.takes) or 'no settings'}{needed}")
        if self.memory == "average" and self.gamma is None:
            raise ValueError("rectifier.memory=average needs rectifier.gamma, the weight of the new retain gradient")
        return self


class Trial(FrozenSettings):
    """Everything that decides a trial's result."""

    method: MethodName
    rectifier: Rectifier = Rectifier()
    objective: settings.Objective = settings.Objective()
    benchmark: settings.Benchmark = settings.Benchmark()
    target: settings.Model
    retain_evaluation: settings.RetainEvaluationFile | None = None
    training: settings.Training = settings.Training()
    resources: settings.Resources = settings.Resources()
    seed: Seed = 0
    observe: Count | None = None
    """Every so many steps a pass on further retain rows measures cos(g_u, g_r) and the retain loss."""
    task_vector: settings.TaskVector | None = None
    """Of the methods tv and tru, and of no other."""
    calibration: settings.Calibration = settings.Calibration()
    selection: settings.Selection = settings.Selection()
    """Chooses the step where `training.eval_every` gives several; of no effect on a trial, and its id, otherwise."""

    @model_validator(mode="after")
    def _check_task_vector(self) -> Self:
        vector, method = self.task_vector, METHODS[self.method]
        if method.strength is None:
            if vector is not None:
                raise ValueError(f"task_vector: method '{self.method}' trains an objective and has no task vector")
            return self
        other = "strength" if method.strength == "stg" else "stg"
        if vector is None or getattr(vector, method.strength) is None or getattr(vector, other) is not None:
            raise ValueError(f"task_vector: method '{self.method}' takes {method.strength} and no {other}")
        if self.rectifier.name != "none":
            raise ValueError(f"rectifier.name: method '{self.method}' has no gradient steps to rectify; use none")
        if method.batched and vector.batches < 2:
            raise ValueError(f"task_vector.batches: {self.method} rectifies each with others, so it needs at least 2")
        if self.observe is not None or self.training.lora_rank is not None:
            raise ValueError(f"method '{self.method}' has no steps to observe and no adapters; leave both out")
        if self.training.eval_every is not None:
            raise ValueError(f"training.eval_every: method '{self.method}' has no steps to choose from; leave it out")
        return self

    @model_validator(mode="after")
    def _check_training(self) -> Self:
        if self.training.batch_size % self.resources.ranks:
            sizes = f"{self.training.batch_size} is not a multiple of resources.ranks={self.resources.ranks}"
            raise ValueError(f"training.batch_size={sizes}")
        if self.training.targets != "rows" and self.benchmark.name != "own":
            raise ValueError(f"training.targets={self.training.targets}: only rows of benchmark own have facts")
        if self.training.eval_every is not None and self.calibration.targets:
            raise ValueError("training.eval_every: a calibrated trial mixes its last step; leave one of the two out")
        if METHODS[self.method].steers and self.training.lora_rank is not None:
            raise ValueError(f"training.lora_rank: method '{self.method}' chooses its own weights; leave lora_rank out")
        return self

    def id(self) -> str:
        """Return the twelve hex digits that name this configuration."""
        return _trial_id(self)  # type: ignore[arg-type]  # frozen, and so hashable

    @property
    def earlier_trial_id(self) -> str | None:
        """Return the id of the trial whose model this one goes on from, None of a target model of its own."""
        mark = self.target.fingerprint or ""
        return mark.removeprefix(EARLIER_TRIAL_PREFIX) if mark.startswith(EARLIER_TRIAL_PREFIX) else None

    def study(self) -> str:
        """Return the name of the trial's Optuna study: split, objective and rectifier."""
        return f"{self.benchmark.split}/{self.method}/{self.rectifier.name}"

    def label(self, axes: Iterable[str] = ()) -> str:
        """Return a readable name: `gru-npo-forget05-g0.8-tnone-s0`; `axes`: more that it tells, of those it reads."""
        name, vector = self.rectifier.name, self.task_vector
        numbers = "".join(
            f"-{setting[0]}{_short(getattr(self.rectifier, setting))}"
            for setting in RECTIFIERS[name].takes
            if setting in GAMMA_AND_TAU and self.rectifier.memory != "current"
        )
        strength = f"-x{_short(vector.stg or vector.strength)}" if vector else ""
        if vector and METHODS[self.method].batched and vector.normalise != "whole":
            strength += f"-{vector.normalise}"
        prefix = "" if name == "none" else f"{name}-"
        others = "".join(
            f"-{path.rpartition('.')[2]}{_short(attrgetter(path)(self))}"
            for path in sorted(axes)
            if path not in PATHS_IN_EVERY_LABEL and setting_has_effect(path, self.method, self.rectifier.name)
        )
        return f"{prefix}{self.method}-{self.benchmark.split}{numbers}{strength}{others}-s{self.seed}"


def setting_has_effect(path: str, method: str, rectifier: str, axes: Mapping[str, Any] | None = None) -> bool:
    """Return whether a setting changes the trials of a method with a rectifier.

    `axes` of the sweep: without a moving average on them, a rule of two gradients has no use for gamma.
    """
    row, (section, _, name) = METHODS[method], path.rpartition(".")
    match section:
        case "rectifier":
            takes, averages = RECTIFIERS[rectifier].takes, axes is None or "average" in axes.get("rectifier.memory", ())
            unused = name == "gamma" and "memory" in takes and not averages
            return not row.strength and (name == "name" or (name in takes and not unused))
        case "objective":
            return not row.strength and (row.custom or name in row.reads or (name == "preset" and bool(row.presets)))
        case "task_vector":
            other = name in ("stg", "strength") and name != row.strength
            of_batches = name in ("batches", "normalise")  # of task vectors that are made of several
            return bool(row.strength) and not other and (row.batched or not of_batches)
        case "training":
            return not row.strength or name == "max_length"
        case _:
            random = path == "seed" and row.batched  # in other vectors nothing is random
            return not row.strength or random or path not in ("seed", "observe")


def check_trial_runnable(trial: Trial) -> None:
    """Raise InputError for what a result may have but no run: `stop_above` never looked at, unusable GPUs or parts."""
    ranks, gpus = trial.resources.ranks, trial.resources.gpus
    if gpus > 1 or 0 < gpus < 1 < ranks:
        raise InputError(
            f"resources.gpus={gpus:g} with ranks={ranks}: it counts the GPUs of one rank, which computes on one; set "
            "gpus=1, and ranks to the number of GPUs; a part of a GPU is for a trial of one rank"
        )
    parts, rows = trial.rectifier.parts or RECTIFIERS[trial.rectifier.name].parts, trial.training.batch_size
    if parts > rows:
        raise InputError(f"rectifier.parts={parts}: a step has {rows} retain rows (training.batch_size); set fewer")
    plain = trial.task_vector is None and RETAIN_PASS not in RECTIFIERS[trial.rectifier.name].needs
    plain = plain and "dual_rate" not in METHODS[trial.method].reads
    plain = plain and trial.objective.retain_coefficient != "balanced"
    if trial.training.stop_above is not None and plain and trial.observe is None:
        advice = "set observe=K to measure it every K steps, or leave the bar out"
        raise InputError(f"training.stop_above: no retain loss is measured with '{trial.rectifier.name}'; {advice}")


def _short(value: float | str | None) -> str:
    return "none" if value is None else value if isinstance(value, str) else f"{value:g}"


@lru_cache(maxsize=2**14)
def _trial_id(trial: Trial) -> str:
    """Return the id, which a plan of thousands of trials asks for many times."""
    chosen = hashed_settings(trial)
    remove_planning_resources(chosen)
    if trial.rectifier.name == "agem":
        chosen["rectifier"]["name"] = "pcgrad"  # what ids of A-GEM are made from; pcgrad itself states its scope
    if trial.training.stop_above is None:
        chosen.pop("observe", None)
    if not trial.calibration.targets:
        chosen.pop("calibration", None)
    if trial.training.eval_every is None:
        chosen.pop("selection", None)
    if trial.training.targets == "fact":
        chosen["training"]["targets"] = "fact as said"  # once it was that of the row's answer
    return hash_json(chosen)[:12]


def remove_planning_resources(identified: dict[str, Any]) -> None:
    """Remove resources that change no number from `hashed_settings`; a part of a GPU counts as a whole."""
    resources = identified.get("resources", {})
    for name in PLANNING_RESOURCE_FIELDS:
        resources.pop(name, None)
    if "gpus" in resources:
        resources["gpus"] = max(1.0, resources["gpus"])
    if not identified.get("resources", True):
        del identified["resources"]


def hashed_settings(value: FrozenSettings) -> dict[str, Any]:
    """Return the chosen settings, without paths if a fingerprint names the content; a default is never changed."""
    return drop_fingerprinted_paths(value.model_dump(mode="json", exclude_defaults=True))


def drop_fingerprinted_paths(node: Any) -> Any:
    """Return a JSON value without the paths that have a fingerprint beside them."""
    if not isinstance(node, dict):
        return node
    kept = {key: drop_fingerprinted_paths(item) for key, item in node.items()}
    places = {"fingerprint": ("path", "data", "sources", "tokenizer"), "data_fingerprint": ("data",)}
    places["idk_fingerprint"] = ("idk",)
    for fingerprint, paths in places.items():
        for path in paths if kept.get(fingerprint) else ():
            kept.pop(path, None)
    return kept
