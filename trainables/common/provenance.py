"""What a result was made with: code, versions, commit, read once a process, before its work."""

from __future__ import annotations

import datetime
import importlib.metadata
import subprocess
import sys
from functools import cache
from typing import Any

from trainables.common.code_hash import ROOT, hash_code

TEMPLATE_DATE = "2025-04-10"
"""What chat templates that write today's date are told: a model's numbers must not depend on the day."""
PACKAGES = ("torch", "deepspeed", "transformers", "ray", "numpy", "scipy", "rouge-score", "lm-eval", "optuna", "mlflow")


@cache
def versions() -> dict[str, str]:
    """Return Python's version and those of the packages that numbers depend on."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    return {"python": python, **{name: importlib.metadata.version(name) for name in PACKAGES}}


@cache
def commit() -> tuple[str | None, bool]:
    """Return the commit, and whether tracked files differ from it or a module is new; (None, False) outside git."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if not head:
        return None, False
    new = ("ls-files", "--others", "--exclude-standard", "--", "trainables/*.py")
    return head, bool(_git("status", "--porcelain", "--untracked-files=no") or _git(*new))


def stamp(*names: str) -> dict[str, Any]:
    """Return versions, commit and code of this process, as every result has them, and the date that templates are told.

    `names` as `hash_code` takes them.
    """
    head, dirty = commit()
    found = {"versions": versions(), "commit": head, "dirty": dirty, "code": hash_code(*names)}
    return found | {"template_date": TEMPLATE_DATE}


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
