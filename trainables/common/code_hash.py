"""The hash of the code that makes a trial's numbers."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CUSTOM = "trainables/methods/custom"
NUMBERS = (
    *(f"{package}/**/*.py" for package in "benchmarks config data inference methods training trial".split()),
    "common/tokenized_row.py",
    "workers/shared_artifacts.py",  # it trains target and retain models
)
"""The modules of trainables/ that make numbers. Others only move numbers: editing them does not change the hash."""


def hash_code(*names: str) -> str:
    """Return twelve hex digits of the modules of NUMBERS, which make a trial's numbers from its configuration.

    `names`: a trial's method and rectifier. If one is a file in trainables/methods/custom/, all files there count.
    """
    plain, whole = _codes()
    return whole if any((ROOT / CUSTOM / f"{name}.py").exists() for name in names) else plain


@cache
def _codes() -> tuple[str, str]:
    """Return the hashes without and with the files in trainables/methods/custom/."""
    plain, whole = hashlib.sha256(), hashlib.sha256()
    modules = [path for part in NUMBERS for path in (ROOT / "trainables").glob(part)]
    for path in sorted(modules):
        entry = f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest()
        whole.update(entry)
        if path.parent != ROOT / CUSTOM or path.name == "__init__.py":
            plain.update(entry)
    return plain.hexdigest()[:12], whole.hexdigest()[:12]
