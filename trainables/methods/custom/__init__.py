"""Objectives and rectifiers beside the published ones, a file each: its name is theirs (docs/decisions/0011).

An objective has `make(constants, seed) -> Objective`, a rectifier a class `Rectifier`: docs/adding.md. A
file whose name begins with `_` is neither, but may hold what several share.
"""

import importlib
from typing import Any

from trainables.common.errors import InputError, first_error_line
from trainables.config.method_tables import GAMMA_AND_TAU, NEEDS, RECTIFIERS, RETAIN_PASS

PART_DESCRIPTIONS = {"make": "make(constants, seed), which returns the objective", "Rectifier": "class Rectifier"}
WORDS_BY_FILE_CONSTANT = {"make": {"NEEDS": NEEDS}, "Rectifier": {"NEEDS": (RETAIN_PASS,), "TAKES": GAMMA_AND_TAU}}


def load_custom_method(name: str, part: str) -> Any:
    """Return `part` of a file here, one of PART_DESCRIPTIONS. Raise InputError if the file is wrong."""
    file = f"trainables/methods/custom/{name}.py"
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except Exception as error:
        raise InputError(f"{file}: {first_error_line(error)}") from error
    if not callable(getattr(module, part, None)):
        raise InputError(f"{file}: it has no {PART_DESCRIPTIONS[part]}")
    for constant, words in WORDS_BY_FILE_CONSTANT[part].items():
        stated = getattr(module, constant, ())
        if not isinstance(stated, tuple | list) or any(word not in words for word in stated):
            raise InputError(f"{file}: {constant} is no tuple of {', '.join(map(repr, words))}")
    found = getattr(module, part)
    if part == "Rectifier" and found.adds_retain != RECTIFIERS[name].adds_retain:
        raise InputError(f"{file}: write ADDS_RETAIN = {found.adds_retain}, as class Rectifier has it")
    return found
