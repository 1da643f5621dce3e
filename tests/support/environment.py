"""Where the checkout is, which settings commands of tests do not inherit, and what trials of tests stand on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Settings of the caller that would change what a command does.
INHERITED_PREFIXES = ("PYTHON", "PYTEST_", "RAY_", "MLFLOW_", "UNLEARN_")

RunModule = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class TrialInputs:
    """What the tests of trials stand on: rows in TOFU's format and two tiny models."""

    data: Path
    target: Path
    retain: Path
    split: str
