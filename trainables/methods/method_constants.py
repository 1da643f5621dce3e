"""The numbers of an objective: a published preset's (METHODS in config.method_tables), or the configuration's own.

paper: what the GRU paper's experiments used, as its text and published code give it.
authors: what the method's own authors published for TOFU.
open-unlearning: that framework's configuration.
"""

from dataclasses import dataclass, replace
from typing import Literal

from trainables.common.errors import InputError
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.config.settings import KLReduction
from trainables.config.settings import Objective as Settings
from trainables.config.trial import Trial

TOFU_ROW_TOKENS = 500
"""TOFU's published code pads every training row to this many tokens."""


@dataclass(frozen=True)
class ObjectiveConstants:
    """Every number an objective may read."""

    beta: float = 0.1
    margin: float = 0.0
    forget_coefficient: float = 1.0
    retain_coefficient: float | Literal["balanced"] = 1.0
    kl_coefficient: float = 1.0
    kl_reduction: KLReduction = "all_positions_fixed_pad"
    layer: int = 7
    steering: float = 6.5
    alpha: float = 1200.0
    rmu_reduction: Literal["all_positions", "labels"] = "all_positions"
    beta2: float = 1.0
    retain_bound: float = 0.3
    dual_rate: float = 1.0
    dual_warmup: float = 0.0


def resolve_constants(method: str, settings: Settings, split: str) -> ObjectiveConstants:
    """Return the numbers of `method`: the preset's, and over them those that the configuration states."""
    presets = METHODS[method].presets
    published = {**presets.get(settings.preset, {}), **presets.get(f"{settings.preset}/{split.split('_')[0]}", {})}
    stated = settings.model_dump(exclude={"preset", "idk", "idk_fingerprint"}, exclude_none=True)
    return replace(ObjectiveConstants(), **published | stated)


def has_retain_term(method: str, settings: Settings, split: str) -> bool:
    """Return whether an objective has terms on retain rows, as its row says; one of weight 0 is none."""
    needs = METHODS[method].needs
    weighted = "retain_loss" in needs and resolve_constants(method, settings, split).retain_coefficient != 0
    return weighted or "retain_multiplier" in needs or ("frozen_model" in needs and "frozen_on_forget" not in needs)


def check_rectifier_fits_retain_terms(trial: Trial) -> None:
    """Raise InputError where a rectifier adds the retain gradient to an objective that has retain terms.

    And where a balanced coefficient has no single retain gradient to go by.
    """
    rectifier, method, settings, split = trial.rectifier.name, trial.method, trial.objective, trial.benchmark.split
    row = METHODS[method]
    if "retain_loss" in row.needs and resolve_constants(method, settings, split).retain_coefficient == "balanced":
        several = "parts" in RECTIFIERS[rectifier].takes
        if several or row.custom or "retain_multiplier" in row.needs:
            other = f"rectifier '{rectifier}'" if several else f"method '{method}'"
            raise InputError(f"objective.retain_coefficient: balanced does not go with {other}; give a number")
    if not (RECTIFIERS[rectifier].adds_retain and has_retain_term(method, settings, split)):
        return
    others = [name for name, row in METHODS.items() if not row.strength and not has_retain_term(name, settings, split)]
    raise InputError(
        f"rectifier.name: '{rectifier}' adds the retain gradient itself, and the retain term of method '{method}' "
        f"would count twice; use a method without one ({', '.join(others)}), or rectifier gru or agem"
    )


def check_rmu_layer(layer: int, depth: int) -> None:
    """Raise InputError where RMU cannot steer `layer` (from 0) of a model of `depth` layers.

    transformers gives the last block's hidden states after the final norm, not the residual stream.
    """
    if layer >= depth - 1:
        raise InputError(f"objective.layer: RMU steers a layer before the last; the model has {depth}, got {layer}")


def check_enough_forget_rows(rows: int, batches: int, split: str) -> None:
    """Raise InputError if the forget points of `split` cannot be divided into so many batches."""
    if rows < 2:
        raise InputError(f"benchmark.split: {split} has one forget point; tru rectifies each with others, so use tv")
    if batches > rows:
        raise InputError(f"task_vector.batches={batches}: {split} has {rows} forget points; give at most {rows}")
