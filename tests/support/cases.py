"""Model folders and row files as people have them, made from the shared data once and kept beside pytest's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from tests.support.environment import clean_environment


@dataclass(frozen=True)
class Cases:
    """`models / NAME` is a model folder, `rows / NAME.jsonl` a file of rows; copy before you change one."""

    models: Path
    rows: Path

    def sources(self, forget: str = "forget", retain: str = "retain") -> dict[str, Path]:
        """Return the files of two sets of rows by the part of benchmark `own` that they are."""
        return {"forget": self.rows / f"{forget}.jsonl", "retain": self.rows / f"{retain}.jsonl"}


def make_cases(shared: Path, cache: Path) -> Cases:
    """Return the cases that `shared/cases/make_cases.py` makes. Skips the test where that file is missing."""
    script = shared / "cases" / "make_cases.py"
    if not script.is_file():
        pytest.skip("the shared data has no cases/make_cases.py")
    folder = cache / hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    with FileLock(cache / "lock"):
        if not folder.is_dir():
            begun = cache / "begun"
            shutil.rmtree(begun, ignore_errors=True)
            subprocess.run([sys.executable, script, begun], env=clean_environment(), check=True, capture_output=True)
            os.rename(begun, folder)
    return Cases(folder / "models", folder / "rows")
