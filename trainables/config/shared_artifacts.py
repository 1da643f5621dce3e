"""Configurations of what trials share, and their ids: models, task vectors, evaluations. Nothing here imports torch."""

from typing import Any

from trainables.common.fingerprints import hash_json
from trainables.config.method_tables import METHODS
from trainables.config.settings import Benchmark, Dialect, FrozenSettings, Model, Precision, TaskVector, Training
from trainables.config.trial import Trial, hashed_settings


class SharedArtifactRecipe(FrozenSettings):
    """Something that trials share."""

    def id(self) -> str:
        return hash_json(hashed_settings(self))[:12]


class ModelRecipe(SharedArtifactRecipe):
    """Making of a model: a base model fine-tuned, or an architecture trained from nothing, on named rows.

    `architecture`: arguments of transformers' LlamaConfig, with a byte-level BPE of `vocabulary` entries. `answers`: id
    of the base model's own answers to the neutral prompts, which are trained on beside the rows.
    """

    base: Model | None = None
    architecture: tuple[tuple[str, bool | int | float], ...] = ()
    vocabulary: int | None = None
    data: str
    revision: str | None = None
    data_fingerprint: str
    configs: tuple[str, ...]
    answers: str | None = None
    template: str
    dialect: Dialect = "paper"
    training: Training
    clip: float | None = 1.0
    seed: int = 0
    cpus: int = 1
    precision: Precision = "fp32"


class TaskVectorRecipe(SharedArtifactRecipe):
    """Making of a task vector without its strength; `rectified`: TRU's mean of rectified unit vectors."""

    rectified: bool
    target: Model
    benchmark: Benchmark
    vector: TaskVector
    max_length: int
    seed: int = 0
    precision: Precision = "fp32"


def make_task_vector_recipe(trial: Trial) -> TaskVectorRecipe | None:
    """Return the direction that a trial moves along; None: it trains an objective."""
    if trial.task_vector is None:
        return None
    rectified = METHODS[trial.method].batched
    free: dict[str, Any] = {"stg": None, "strength": None}
    if not rectified:
        free |= {"batches": 1, "normalise": "whole"}
    return TaskVectorRecipe(
        rectified=rectified,
        target=trial.target,
        benchmark=trial.benchmark.model_copy(update={"measures": (), "holdout": None}),
        vector=trial.task_vector.model_copy(update=free),
        max_length=trial.training.max_length,
        seed=trial.seed if rectified else 0,
        precision=trial.resources.precision,
    )


def evaluation_id(model: Model, benchmark: Benchmark, retain: str | None = None, precision: Precision = "fp32") -> str:
    """Return the hex digits that name the evaluation of `model`, with FQ against the retain evaluation `retain`."""
    parts = {"model": hashed_settings(model), "benchmark": hashed_settings(benchmark), "retain": retain}
    if precision != "fp32":
        parts["precision"] = precision
    return hash_json(parts)[:12]
