"""Objectives beside the published ones: a file here is one, its name the method's (docs/decisions/0011).

A file has `make(constants, seed) -> Objective`: README.md, "Add something". A name that begins with `_` is
no objective but what several share. Nothing here imports torch before an objective is asked for.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from trainables.common.errors import InputError, first_line

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_"))
"""Every method that a file here adds."""


def find(method: str) -> Any:
    """The module of an added method, which has `make`. Raises InputError where its file is wrong: people write them."""
    file = f"trainables/methods/custom/{method}.py"
    try:
        module = importlib.import_module(f"{__name__}.{method}")
    except Exception as error:
        raise InputError(f"{file}: {first_line(error)}") from error
    if not callable(getattr(module, "make", None)):
        raise InputError(f"{file}: it has no make(constants, seed), which returns the objective")
    return module
