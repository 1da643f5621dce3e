"""SmolLM2-135M-Instruct, made from the shared data once and kept beside pytest's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from tests.support.environment import clean_environment


def make_model(shared: Path, cache: Path) -> Path:
    """Return the model's folder; copy before you change it. Skips the test where it cannot be made."""
    script = shared / "models" / "smollm2_135m" / "make.sh"
    if not script.is_file():
        pytest.skip("the shared data has no models/smollm2_135m/make.sh")
    folder = cache / hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    with FileLock(cache / "lock"):
        if not folder.is_dir():
            begun = cache / "begun"
            shutil.rmtree(begun, ignore_errors=True)
            command = ["bash", str(script), str(begun), sys.executable]
            made = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
            if made.returncode:
                pytest.skip(f"SmolLM2-135M-Instruct cannot be made: {made.stderr.strip()[-200:]}")
            os.rename(begun, folder)
    return folder
