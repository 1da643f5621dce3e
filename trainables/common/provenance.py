"""What a result was made with: code, versions, commit.

Each is read once a process, at its first question: a process asks before its work, because the files may change later.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from trainables.methods import custom

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "deepspeed", "transformers", "ray", "numpy", "scipy", "rouge-score", "lm-eval", "optuna", "mlflow")


@cache
def versions() -> dict[str, str]:
    """Python's version and those of the packages that numbers depend on."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    return {"python": python, **{name: importlib.metadata.version(name) for name in PACKAGES}}


@cache
def commit() -> tuple[str | None, bool]:
    """The checkout's commit, and whether tracked files differ from it or a module is new; (None, False) outside git."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if not head:
        return None, False
    new = ("ls-files", "--others", "--exclude-standard", "--", "trainables/*.py")
    return head, bool(_git("status", "--porcelain", "--untracked-files=no") or _git(*new))


def code(method: str | None = None) -> str:
    """Twelve hex digits of the modules of trainables/, which make a trial's numbers from its configuration.

    The objectives in trainables/methods/custom/ count for trials of such a `method` alone, and then all of them do: a
    file there may import another one, and nothing else imports any.
    """
    plain, whole = _codes()
    return whole if method in custom.NAMES else plain


@cache
def _codes() -> tuple[str, str]:
    """Without and with the objectives in trainables/methods/custom/."""
    plain, whole = hashlib.sha256(), hashlib.sha256()
    folder = ROOT / "trainables"
    for path in sorted(folder.rglob("*.py")):
        told = f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest()
        whole.update(told)
        if path.parent != folder / "methods" / "custom" or path.name == "__init__.py":
            plain.update(told)
    return plain.hexdigest()[:12], whole.hexdigest()[:12]


def stamp(method: str | None = None) -> dict[str, Any]:
    """`started`-independent facts that go into every result, of a trial's `method`: those of this process's first call.

    None: of what no objective has a part in.
    """
    head, dirty = commit()
    return {"versions": versions(), "commit": head, "dirty": dirty, "code": code(method)}


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
