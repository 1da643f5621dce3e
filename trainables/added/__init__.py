"""Objectives beside the published ones: a file here is one, its name the method's (docs/decisions/0011).

A file has `make(constants, seed) -> Objective`: README.md, "Add something". Nothing here imports torch.
"""

from __future__ import annotations

import pkgutil

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
"""Every method that a file here adds."""
