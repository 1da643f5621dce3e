"""Libraries without what they import at every start and nothing here uses."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def without_modules(*names: str) -> Iterator[None]:
    """Let these modules look as if they were not installed to what is imported meanwhile."""
    known = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    # Python takes None for a module that cannot be imported.
    sys.modules.update(dict.fromkeys(names))  # pyright: ignore[reportArgumentType, reportCallIssue]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(known)
