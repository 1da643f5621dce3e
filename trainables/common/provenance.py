"""What a result was made with: code, versions, commit, read once a process, before its work."""

import datetime
import hashlib
import importlib.metadata
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

CODE_ROOT = Path(__file__).resolve().parents[2]
CUSTOM_METHODS_FOLDER = "trainables/methods/custom"
RESULT_CODE_PATTERNS = (
    *(f"{package}/**/*.py" for package in "benchmarks config data inference methods training trial".split()),
    "common/tokenized_row.py",
    "workers/shared_artifacts.py",  # it trains target and retain models
)
"""The modules of trainables/ that make numbers. Others only move numbers: editing them does not change the hash."""
CHAT_TEMPLATE_DATE = "2025-04-10"
"""What chat templates that write today's date are told: a model's numbers must not depend on the day."""
PACKAGES = ("torch", "deepspeed", "transformers", "ray", "numpy", "scipy", "rouge-score", "lm-eval", "optuna", "mlflow")


@cache
def read_package_versions() -> dict[str, str]:
    python = ".".join(str(part) for part in sys.version_info[:3])
    return {"python": python, **{name: importlib.metadata.version(name) for name in PACKAGES}}


@cache
def read_git_state() -> tuple[str | None, bool]:
    """Return the commit, and whether tracked files differ from it or a module is new; (None, False) outside git."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if not head:
        return None, False
    new = ("ls-files", "--others", "--exclude-standard", "--", "trainables/*.py")
    return head, bool(_git("status", "--porcelain", "--untracked-files=no") or _git(*new))


def collect_provenance(*names: str) -> dict[str, Any]:
    """Return versions, commit and code of this process, and the date that templates are told."""
    head, dirty = read_git_state()
    found = {"versions": read_package_versions(), "commit": head, "dirty": dirty, "code": hash_result_code(*names)}
    return found | {"template_date": CHAT_TEMPLATE_DATE}


def hash_result_code(*names: str) -> str:
    """Return twelve hex digits of RESULT_CODE_PATTERNS' modules; those in custom/ count if one of `names` is there."""
    plain, whole = _codes()
    return whole if any((CODE_ROOT / CUSTOM_METHODS_FOLDER / f"{name}.py").exists() for name in names) else plain


@cache
def _codes() -> tuple[str, str]:
    """Return the hashes without and with the files in trainables/methods/custom/."""
    plain, whole = hashlib.sha256(), hashlib.sha256()
    modules = [path for part in RESULT_CODE_PATTERNS for path in (CODE_ROOT / "trainables").glob(part)]
    for path in sorted(modules):
        entry = f"{path.relative_to(CODE_ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest()
        whole.update(entry)
        if path.parent != CODE_ROOT / CUSTOM_METHODS_FOLDER or path.name == "__init__.py":
            plain.update(entry)
    return plain.hexdigest()[:12], whole.hexdigest()[:12]


def utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(CODE_ROOT), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
