"""Model folders and row files as people have them, which a script of the shared data makes: once for all checkouts."""

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


def make_cases(shared: Path) -> Cases:
    """Return what the script makes; it is kept in the user's cache, since that takes most of a minute."""
    script = shared / "cases" / "make_cases.py"
    if not script.is_file():
        pytest.skip(f"the shared data has no {script.parent.name}/{script.name}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unlearn-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    with FileLock(cache / "lock"):
        if not folder.is_dir():
            begun = cache / "begun"
            shutil.rmtree(begun, ignore_errors=True)
            command = [sys.executable, str(script), str(begun)]
            made = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
            if made.returncode:
                pytest.skip(f"{script.name} failed: {made.stderr.strip()[-200:]}")
            os.rename(begun, folder)
    return Cases(folder / "models", folder / "rows")
