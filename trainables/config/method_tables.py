"""Tables of all methods and rectifiers, a row each: METHODS and RECTIFIERS. Nothing here imports torch.

A file in trainables/methods/custom/ adds the row of its name (docs/decisions/0011). It is parsed here, not imported.
"""

import ast
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

CUSTOM_METHODS_FOLDER = Path(__file__).parents[1] / "methods" / "custom"

NEEDS = ("retain_loss", "frozen_model", "distributions", "reference_sums")
"""Needs of an objective, of files in custom/ too, apart from the forward and backward pass on the forget rows.

retain_loss: such a pass on retain rows, for a term of their plain loss (where `retain_coefficient` is not 0).
frozen_model: a copy of the target model, and its forward pass beside one with gradients on retain rows.
distributions: both models' distributions over the vocabulary there.
reference_sums: S_i^0, one forward pass of the target model over the forget rows that the steps draw.

Of published objectives alone:
pairs: each forget row once more with another answer, in one pass with it, another one each epoch.
frozen_on_forget: the frozen model reads the forget rows, beside the pass that there is anyhow.
retain_multiplier: the retain term has a pass of its own, whose gradient is kept until its weight is known.
"""
RETAIN_PASS = "retain_pass"
"""Need of a rectifier: each step a forward and backward pass on retain rows, and its fp32 moving average."""
GAMMA_AND_TAU = ("gamma", "tau")
"""Settings of GRU, and of rectifiers in custom/."""


@dataclass(frozen=True)
class MethodOrRectifierRow:
    """Common part of methods and rectifiers. Memory, time and rows are planned from `needs`."""

    name: str
    label: str
    needs: tuple[str, ...] = ()
    custom: bool = False
    """A file of that name in trainables/methods/custom/ has it."""


@dataclass(frozen=True)
class MethodRow(MethodOrRectifierRow):
    """An objective that is trained, or a task vector. `needs`: those that NEEDS tells of."""

    reads: tuple[str, ...] = ()
    """The settings of `objective` that it reads."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By preset, or PRESET/SPLIT (MUSE: `news` or `books`): the numbers that differ from the defaults."""
    steers: bool = False
    """It steers the layer `objective.layer` and trains the last matrix of it and of the two layers before it alone."""
    strength: Literal["stg", "strength"] | None = None
    """Of a task vector: the setting of `task_vector` that says how far it moves the target model."""
    batched: bool = False
    """Of a task vector: made from several batches, which the seed draws, each rectified with the others."""


@dataclass(frozen=True)
class RectifierRow(MethodOrRectifierRow):
    """A change of the objective's gradient before the optimizer. `label` stands after "w/" in tables."""

    takes: tuple[str, ...] = ()
    """The settings that it accepts, of those in config.trial.Rectifier."""
    requires: tuple[str, ...] = ()
    scope: Literal["global", "tensor"] = "global"
    """What it decides on where `scope` is open, as published."""
    adds_retain: bool = False
    """It takes the gradient of the forget terms alone, and adds the retain gradient itself."""
    parts: int = 1
    """Where `parts` is open: how many retain gradients it keeps."""


def _all_presets(split: str = "", /, **numbers: Any) -> dict[str, dict[str, Any]]:
    """Return numbers that hold in every preset: of methods that the GRU paper does not run, or with a single source."""
    return {f"{preset}{split}": numbers for preset in ("paper", "authors", "open-unlearning")}


_KL = ("kl_coefficient", "kl_reduction")
_COEFFICIENTS = ("forget_coefficient", "retain_coefficient")
_OPEN_KL = {"open-unlearning": {"kl_reduction": "all_positions"}}

_METHODS = (  # in the order of the paper's main table
    MethodRow("ga", "GA", reads=("forget_coefficient",)),
    MethodRow(
        "ga_kl",
        "GA+KL",
        ("frozen_model", "distributions"),
        reads=("forget_coefficient", *_KL),
        presets={"paper": {"kl_coefficient": 5.0}, **_OPEN_KL},
    ),
    MethodRow("gd", "GD", ("retain_loss",), reads=_COEFFICIENTS),
    MethodRow(
        "wga",
        "WGA",
        ("retain_loss",),
        reads=("beta", *_COEFFICIENTS),
        presets={
            "paper": {"beta": 0.1, "retain_coefficient": 0.0},
            "authors": {"beta": 5.0, "retain_coefficient": 0.0},
            "open-unlearning": {"beta": 1.0, "retain_coefficient": 1.0},
        },
    ),
    MethodRow("npo", "NPO", ("reference_sums",), reads=("beta", "forget_coefficient")),
    MethodRow(
        "npo_kl",
        "NPO+KL",
        ("reference_sums", "frozen_model", "distributions"),
        reads=("beta", "forget_coefficient", *_KL),
        presets=_OPEN_KL,
    ),
    MethodRow("npo_gd", "NPO+GD", ("reference_sums", "retain_loss"), reads=("beta", *_COEFFICIENTS)),
    MethodRow(
        "simnpo",
        "SimNPO",
        reads=("beta", "margin", "forget_coefficient"),
        presets={
            "paper": {"beta": 0.1},
            "authors": {"beta": 2.5},
            "authors/forget10": {"beta": 4.5},  # SimNPO's authors tuned two splits apart
            "open-unlearning": {"beta": 4.5},
        },
    ),
    MethodRow(
        "simnpo_gd",
        "SimNPO+GD",
        ("retain_loss",),
        reads=("beta", "margin", *_COEFFICIENTS),
        presets={
            "paper": {"beta": 0.1, "forget_coefficient": 1.0, "retain_coefficient": 0.1},
            "authors": {"beta": 2.5, "forget_coefficient": 0.1375, "retain_coefficient": 1.0},
            "authors/forget10": {"beta": 4.5, "forget_coefficient": 0.125},
            "open-unlearning": {"beta": 4.5, "forget_coefficient": 0.125, "retain_coefficient": 1.0},
        },
    ),
    MethodRow(
        "rmu",
        "RMU",
        ("frozen_model",),
        reads=("layer", "steering", "alpha", "rmu_reduction"),
        presets={
            "paper": {"alpha": 100.0},
            "open-unlearning": {"steering": 2.0, "alpha": 1.0, "rmu_reduction": "labels"},
        },
        steers=True,
    ),
    MethodRow("tv", "TV", strength="strength"),
    MethodRow("tru", "TRU", strength="stg", batched=True),
    # the paper does not run those below; its preset has open-unlearning's numbers
    MethodRow(
        "idk_dpo",
        "IdkDPO",
        ("reference_sums", "retain_loss", "pairs"),
        reads=("beta", *_COEFFICIENTS, "idk"),
        # TOFU's loss has no factor 2 / beta, at its beta of 0.1, and no retain term
        presets={"authors": {"forget_coefficient": 0.05, "retain_coefficient": 0.0}},
    ),
    MethodRow(
        "idk_nll",
        "IdkNLL",
        ("retain_loss",),
        reads=(*_COEFFICIENTS, "idk"),
        presets={"open-unlearning": {"retain_coefficient": 0.0}},  # fine-tuning on its forget rows with these answers
    ),
    MethodRow(
        "undial",
        "UNDIAL",
        ("frozen_model", "distributions", "retain_loss", "frozen_on_forget"),
        reads=("beta", "kl_reduction", *_COEFFICIENTS),
        presets=_all_presets(beta=10.0, retain_coefficient=0.0, kl_reduction="labels")
        | {"open-unlearning": {"beta": 10.0, "retain_coefficient": 0.0, "kl_reduction": "all_positions"}},
    ),
    MethodRow(
        "satimp",
        "SatImp",
        ("retain_loss",),
        reads=("beta", "beta2", *_COEFFICIENTS),
        presets=_all_presets(beta=5.0, beta2=1.0, forget_coefficient=0.1)
        | {"authors": {"beta": 5.0, "beta2": 0.1, "retain_coefficient": 0.1}},
    ),
    MethodRow("ceu", "CE-U", reads=("forget_coefficient",)),
    MethodRow(
        "pdu",
        "PDU",
        ("retain_loss", "retain_multiplier"),
        reads=(*_COEFFICIENTS, "retain_bound", "dual_rate", "dual_warmup"),
        # on TOFU its authors step by 5 in each of 4 micro-batches of an optimizer step
        presets=_all_presets(retain_coefficient=100.0, retain_bound=0.3, dual_rate=20.0, dual_warmup=5.0)
        | _all_presets("/news", retain_coefficient=50.0, retain_bound=1.5, dual_rate=1.0, dual_warmup=3.0)
        | _all_presets("/books", retain_coefficient=50.0, retain_bound=0.1, dual_rate=1.0, dual_warmup=3.0),
    ),
)
_MEMORY = ("memory", "gamma")
_RULE = ("scope", *_MEMORY)


def _two(name: str, label: str, takes: tuple[str, ...] = _RULE, **more: Any) -> RectifierRow:
    """Return the row of a rule that combines the forget gradient and the retain gradient."""
    return RectifierRow(name, label, (RETAIN_PASS,), takes=takes, adds_retain=True, **more)


_RECTIFIERS = (  # in the order of tables and legends
    RectifierRow("none", "no rectifier"),
    RectifierRow("clip", "clip", takes=("tau",), requires=("tau",)),
    RectifierRow("agem", "A-GEM", (RETAIN_PASS,)),  # gru with gamma 1 and no clipping
    _two("pcgrad", "PCGrad"),
    _two("pcgrad_symmetric", "symmetric PCGrad"),
    _two("blur", "BLUR"),
    _two("hamu_q", "HAMU-Q", (*_RULE, "ratio"), scope="tensor"),
    _two("hamu_u", "HAMU-U", (*_RULE, "ratio"), scope="tensor"),
    _two("bisector", "bisector"),
    _two("mgda", "MGDA"),
    _two("cagrad", "CAGrad", (*_RULE, "kappa")),
    _two("sago", "SAGO", _MEMORY),
    _two("gu", "GU", _MEMORY),
    _two("orthograd", "OrthoGrad", ("parts",), parts=4),
    RectifierRow("gem", "GEM", (RETAIN_PASS,), takes=("parts",), parts=4),
    RectifierRow("gru", "GRU", (RETAIN_PASS,), takes=GAMMA_AND_TAU),
)


def _read_custom_file(path: Path) -> Iterator[MethodOrRectifierRow]:
    """Yield the rows of a file in custom/: a rectifier's if it has a class Rectifier, an objective's if a make.

    LABEL, NEEDS, TAKES and ADDS_RETAIN are plain values; without the first three, or of a file that cannot be parsed,
    the most is assumed.
    """
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (SyntaxError, ValueError):
        body = []
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    stated = {}
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id="LABEL" | "NEEDS" | "TAKES" | "ADDS_RETAIN" as name)], value=value):
                with contextlib.suppress(ValueError):  # no plain value
                    stated[name] = ast.literal_eval(value)
    label, needs = str(stated.get("LABEL", path.stem)), stated.get("NEEDS")
    if "Rectifier" in defined or "make" not in defined:
        takes = _known(stated.get("TAKES"), GAMMA_AND_TAU)
        adds = stated.get("ADDS_RETAIN") is True
        yield RectifierRow(path.stem, label, _known(needs, (RETAIN_PASS,)), takes=takes, adds_retain=adds, custom=True)
    if "make" in defined or "Rectifier" not in defined:
        yield MethodRow(path.stem, label, _known(needs, NEEDS), custom=True)


def _known(stated: Any, most: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of `most` that are stated; all if none is, or others are (`load_custom_method` refuses it)."""
    valid = isinstance(stated, tuple | list) and all(word in most for word in stated)
    return tuple(word for word in most if word in stated) if valid else most


_CUSTOM = tuple(row for path in sorted(CUSTOM_METHODS_FOLDER.glob("[!_]*.py")) for row in _read_custom_file(path))
for _taken in {row.name for row in _CUSTOM} & {row.name for row in (*_METHODS, *_RECTIFIERS)}:
    raise ValueError(f"trainables/methods/custom/{_taken}.py: '{_taken}' is published; give the file another name")
METHODS = {row.name: row for row in (*_METHODS, *_CUSTOM) if isinstance(row, MethodRow)}
RECTIFIERS = {row.name: row for row in (*_RECTIFIERS, *_CUSTOM) if isinstance(row, RectifierRow)}

if TYPE_CHECKING:
    MethodName = str
    RectifierName = str
else:
    MethodName = Literal[tuple(METHODS)]
    RectifierName = Literal[tuple(RECTIFIERS)]
