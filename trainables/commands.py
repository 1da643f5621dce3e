"""What the commands of this room share: one message and exit status 2 for bad input, never a traceback."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable

from pydantic import ValidationError

from trainables.errors import InputError, TrialStopped

FULL = (errno.ENOSPC, errno.EDQUOT)


def guarded(main: Callable[[], int]) -> int:
    """Run `main`; InputError and an invalid configuration become one message and status 2.

    A diverged model and a full disk become one and status 1.
    """
    try:
        return main()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
    except TrialStopped as stopped:
        print(f"error: {stopped.message}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"error: {error.strerror}: '{error.filename}'; make room, then start again", file=sys.stderr)
        return 1
    except ValidationError as error:
        print(f"error: {describe(error)}", file=sys.stderr)
    return 2


def describe(error: ValidationError) -> str:
    """Every problem of a configuration as `path: what is wrong (got value)`, all at once."""
    problems = []
    for item in error.errors(include_url=False, include_context=False):
        path = ".".join(str(part) for part in item["loc"])
        received = "" if isinstance(item["input"], dict) else f" (got {item['input']!r})"
        problems.append(f"{path}: {item['msg'].removeprefix('Value error, ')}{received}".removeprefix(": "))
    return "; ".join(problems)


def duration(seconds: float) -> str:
    """`42 s`, `3.5 min`, `2.1 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
