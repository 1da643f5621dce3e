"""The published settings of each objective, which differ under one name: `paper`, `authors`, `open-unlearning`.

paper: what the GRU paper's experiments used, as its text and published code give it.
authors: what the method's own authors published for TOFU.
open-unlearning: that framework's configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from trainables.common.errors import InputError
from trainables.config.settings import Objective as Settings

KLReduction = Literal["labels", "attended", "all_positions", "all_positions_fixed_pad"]
FIXED_PAD = 500
"""TOFU's published code pads every training row to this many tokens."""


@dataclass(frozen=True)
class Constants:
    """Every number an objective may read."""

    beta: float = 0.1
    margin: float = 0.0
    forget_coefficient: float = 1.0
    retain_coefficient: float = 1.0
    kl_coefficient: float = 1.0
    kl_reduction: KLReduction = "all_positions_fixed_pad"
    layer: int = 7
    steering: float = 6.5
    alpha: float = 1200.0
    rmu_reduction: Literal["all_positions", "labels"] = "all_positions"


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "ga_kl": {"kl_coefficient": 5.0},
        "wga": {"beta": 0.1, "retain_coefficient": 0.0},
        "simnpo": {"beta": 0.1},
        "simnpo_gd": {"beta": 0.1, "forget_coefficient": 1.0, "retain_coefficient": 0.1},
    },
    "authors": {
        "wga": {"beta": 5.0, "retain_coefficient": 0.0},
        "simnpo": {"beta": 2.5},
        "simnpo_gd": {"beta": 2.5, "forget_coefficient": 0.1375, "retain_coefficient": 1.0},
    },
    "open-unlearning": {
        "ga_kl": {"kl_reduction": "all_positions"},
        "wga": {"beta": 1.0, "retain_coefficient": 1.0},
        "npo_kl": {"kl_reduction": "all_positions"},
        "simnpo": {"beta": 4.5},
        "simnpo_gd": {"beta": 4.5, "forget_coefficient": 0.125, "retain_coefficient": 1.0},
        "rmu": {"steering": 2.0, "alpha": 1.0, "rmu_reduction": "labels"},
    },
}

BY_SPLIT: dict[tuple[str, str, str], dict[str, Any]] = {
    ("authors", "simnpo", "forget10"): {"beta": 4.5},
    ("authors", "simnpo_gd", "forget10"): {"beta": 4.5, "forget_coefficient": 0.125},
}
"""SimNPO's authors tuned two splits apart: (preset, method, split)."""


def constants(method: str, settings: Settings, split: str) -> Constants:
    """The numbers of `method`: the preset's, and over them those that the configuration states."""
    found = replace(Constants(), **PRESETS[settings.preset].get(method, {}))
    found = replace(found, **BY_SPLIT.get((settings.preset, method, split), {}))
    stated = settings.model_dump(exclude={"preset"}, exclude_none=True)
    return replace(found, **stated)


def check_layer(layer: int, depth: int) -> None:
    """Raise InputError where RMU cannot steer `layer` (from 0) of a model of `depth` layers.

    transformers gives the last block's hidden states after the final norm, not the residual stream.
    """
    if layer >= depth - 1:
        raise InputError(f"objective.layer: RMU steers a layer before the last; the model has {depth}, got {layer}")
