"""Files that are made once and kept with the compiled Python of a package."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def read_or_make(folder: Path, name: str, make: Callable[[], bytes]) -> bytes:
    """Return what is kept under a name, which says what it was made of; make it where it is missing."""
    kept = folder / "__pycache__" / name
    with suppress(OSError):  # not made yet, or another's alone
        return kept.read_bytes()
    content = make()
    with suppress(OSError):  # a package that only others may write to
        kept.parent.mkdir(exist_ok=True)
        staging = kept.with_suffix(f".{os.getpid()}")
        with staging.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        staging.replace(kept)
    return content
