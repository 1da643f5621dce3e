"""Objectives beside the published ones: a file here is one, its name the method's (docs/decisions/0011).

A file has `make(constants, seed) -> Objective`: README.md, "Add something". A name that begins with `_` is
no objective but what several share. Nothing here imports torch.
"""

from __future__ import annotations

import pkgutil

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_"))
"""Every method that a file here adds."""
