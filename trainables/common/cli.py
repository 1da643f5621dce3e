"""What the commands share: bad input becomes one message and exit status 2; --storage."""

import atexit
import errno
import functools
import gc
import io
import os
import signal
import sys
import unicodedata
from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from trainables.common.errors import InputError, TrialDiverged, first_error_line
from trainables.common.redaction import redact

DEFAULT_STORAGE, STORAGE_VARIABLE = "runs", "UNLEARN_STORAGE"
"""Where results are if nobody says, and the variable that says it for every command of a machine."""
StorageOption = Annotated[
    str, typer.Option("--storage", envvar=STORAGE_VARIABLE, help="Folder or address (s3://...) of the results.")
]
SweepArgument = Annotated[str, typer.Argument(help="Sweep: NAME (its newest) or NAME-HASH.")]
PATH_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR)
"""Error numbers of a path that somebody named and that cannot be used."""
MAX_VALUE_LENGTH, MAX_ERROR_MESSAGE_LENGTH = 120, 3500
"""Characters of a value that a message repeats, and of a message."""


def make_typer_app(main: Callable[..., int]) -> typer.Typer:
    """Make a command of a function: it ends with the exit status of the function, run as `run_for_exit_status` does."""
    app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})

    @app.command()
    @functools.wraps(main)
    def run(*arguments: Any, **options: Any) -> None:
        atexit.register(gc.freeze)  # no last search for cycles in all that torch leaves, 1.2 s: files are closed before
        raise typer.Exit(run_for_exit_status(lambda: main(*arguments, **options)))

    return app


class _Output(io.FileIO):
    """Standard output that goes on in silence once nobody reads it (`| head`), or after the error of a full disk."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if error.errno != errno.EPIPE:
                raise
            return len(content)


def run_for_exit_status(main: Callable[[], int]) -> int:
    """Run `main`; return the exit status: 2 after bad input, 1 after a diverged model or a full disk."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        shown, output = sys.stdout, _Output(sys.stdout.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(output), shown.encoding, shown.errors, line_buffering=True)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return main()
    except KeyboardInterrupt:
        _print_error("interrupted")
        return 130
    except InputError as error:
        _print_error(str(error))
    except TrialDiverged as stopped:
        _print_error(stopped.message)
        return 1
    except ValidationError as error:
        _print_error(describe_invalid_settings(error))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = f": '{error.filename}'" if error.filename else ""
            _print_error(f"{error.strerror}{where}; make room, then start again")
            return 1
        if error.errno not in PATH_ERRNOS:
            raise
        _print_error(f"'{error.filename}' cannot be read or written: {error.strerror}")
    return 2


def _print_error(message: str) -> None:
    """Print one line: line ends and control characters are escaped, a very long message is cut."""
    shown = "".join(map(_escape, redact(message)))
    if len(shown) > MAX_ERROR_MESSAGE_LENGTH:
        shown = f"{shown[:MAX_ERROR_MESSAGE_LENGTH]}... ({len(shown)} characters)"
    print_line(f"error: {shown}", error=True)


def print_line(text: str, *, error: bool = False, end: str = "\n") -> None:
    """Print text without secrets and terminal escapes, with `error` to the error stream: the one place that prints."""
    print(escape_controls(redact(text)), end=end, file=sys.stderr if error else sys.stdout, flush=True)


def escape_controls(text: str) -> str:
    """Return text for a terminal: line ends, tabs and all spaces stay, other control characters are escaped."""
    return "".join(
        character if character in "\n\t" or unicodedata.category(character) == "Zs" else _escape(character)
        for character in text
    )


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def describe_invalid_settings(error: Exception) -> str:
    """Return every problem of a configuration as `path: what is wrong (got value)`; of other errors the first line."""
    if not isinstance(error, ValidationError):
        return first_error_line(error)
    problems = []
    for item in error.errors(include_url=False, include_context=False):
        path, value = ".".join(map(str, item["loc"])), repr(item["input"])
        value = value if len(value) <= MAX_VALUE_LENGTH else f"{value[:MAX_VALUE_LENGTH]}... {len(value)} characters"
        received = "" if isinstance(item["input"], dict) else f" (got {value})"
        problems.append(f"{path}: {item['msg'].removeprefix('Value error, ')}{received}".removeprefix(": "))
    return "; ".join(problems)


def silence_libraries() -> None:
    """Keep libraries' progress bars and notices out of a command's output."""
    import logging
    import warnings

    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="torch|deepspeed")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
