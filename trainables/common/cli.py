"""What the commands of this room share: one message and exit status 2 for bad input, never a traceback."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from trainables.common.errors import InputError, TrialStopped
from trainables.common.redaction import redact

SHOWN = 120
"""Characters of a value that a message repeats."""
LONG_WORD = re.compile(r"(\S{200})\S{600,}")

FULL = (errno.ENOSPC, errno.EDQUOT)


def guarded(main: Callable[[], int]) -> int:
    """Run `main`; InputError and an invalid configuration become one message and status 2.

    A diverged model and a full disk become one and status 1.
    """
    try:
        return main()
    except InputError as error:
        _tell(str(error))
    except TrialStopped as stopped:
        _tell(stopped.message)
        return 1
    except ValidationError as error:
        _tell(describe(error))
    except PermissionError as error:
        _tell(f"'{error.filename}' cannot be read or written: {error.strerror}")
    except OSError as error:
        if error.errno not in FULL:
            raise
        _tell(f"{error.strerror}: '{error.filename}'; make room, then start again")
        return 1
    return 2


def _tell(message: str) -> None:
    print(f"error: {_one_line(redact(message))}", file=sys.stderr)


def _one_line(message: str) -> str:
    """The message without line ends and control characters, and very long words cut."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape", "replace").decode()
        for character in message
    )
    return LONG_WORD.sub(lambda found: f"{found[1]}... ({len(found[0])} characters)", shown)


def describe(error: ValidationError) -> str:
    """Every problem of a configuration as `path: what is wrong (got value)`, all at once."""
    problems = []
    for item in error.errors(include_url=False, include_context=False):
        path = ".".join(str(part) for part in item["loc"])
        received = "" if isinstance(item["input"], dict) else f" (got {_short(item['input'])})"
        problems.append(f"{path}: {item['msg'].removeprefix('Value error, ')}{received}".removeprefix(": "))
    return "; ".join(problems)


def duration(seconds: float) -> str:
    """`42 s`, `3.5 min`, `2.1 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def several(count: int, name: str) -> str:
    """`1 model`, `2 models`."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def few(amount: float) -> str:
    """`12.3`, `0.03`, `less than 0.01`: never `0.0` of something."""
    if amount >= 1:
        return f"{amount:.1f}"
    return f"{amount:.2f}" if amount >= 0.01 else "less than 0.01"


def size(count: float) -> str:
    """Bytes as `1.5 MB`, `512 MB`, `13.5 GB`."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e7 else f"{count / 1e6:.1f} MB"


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}... {len(shown)} characters"


def quiet() -> None:
    """Keep libraries' progress bars and notices out of a command's output."""
    import logging
    import os
    import warnings

    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="torch|deepspeed")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
