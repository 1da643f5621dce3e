"""What a result was made with: versions, commit, topology."""

from __future__ import annotations

import datetime
import importlib.metadata
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "deepspeed", "transformers", "ray", "numpy", "scipy", "rouge-score", "lm-eval", "optuna", "mlflow")


@cache
def versions() -> dict[str, str]:
    """Python's version and those of the packages that numbers depend on."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    return {"python": python, **{name: importlib.metadata.version(name) for name in PACKAGES}}


@cache
def commit() -> tuple[str | None, bool]:
    """The checkout's commit and whether tracked files differ from it; (None, False) outside git."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return (head, bool(_git("status", "--porcelain", "--untracked-files=no"))) if head else (None, False)


def stamp() -> dict[str, Any]:
    """`started`-independent facts that go into every result."""
    head, dirty = commit()
    return {"versions": versions(), "commit": head, "dirty": dirty}


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
