"""Model folders and row files that scripts of the shared data make: once, and kept beside pytest's cache."""

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
    """Return models and rows as people have them."""
    folder = make_once(shared / "cases" / "make_cases.py", sys.executable, cache)
    return Cases(folder / "models", folder / "rows")


def make_smollm2(shared: Path, cache: Path) -> Path:
    """Return the folder of SmolLM2-135M-Instruct."""
    return make_once(shared / "models" / "smollm2_135m" / "make.sh", "bash", cache)


def make_once(script: Path, program: str, cache: Path) -> Path:
    """Return the folder that a script makes; copy before you change it. Skips the test where it cannot be made."""
    if not script.is_file():
        pytest.skip(f"the shared data has no {script.parent.name}/{script.name}")
    folder = cache / hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    with FileLock(cache / "lock"):
        if not folder.is_dir():
            begun = cache / "begun"
            shutil.rmtree(begun, ignore_errors=True)
            command = [program, str(script), str(begun), sys.executable]
            made = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
            if made.returncode:
                pytest.skip(f"{script.name} failed: {made.stderr.strip()[-200:]}")
            os.rename(begun, folder)
    return folder
