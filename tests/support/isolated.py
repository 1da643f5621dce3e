"""Commands as people type them, each in a process of its own that is forked from one with every library loaded."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from unittest import mock

from matplotlib.figure import Figure

from tests.support.environment import ROOT

LIBRARIES = ("pandas", "pyarrow.parquet", "matplotlib.pyplot", "mlflow", "pydantic", "typer", "transformers")
LIBRARIES += ("mlflow.store.tracking.sqlalchemy_store", "alembic.command")
COMMANDS = ("platform.sweep", "platform.status", "platform.tracking.tracker", "platform.cluster.__main__")
COMMANDS += ("analysis.report", "trainables.run", "trainables.evaluate", "trainables.export")
MEMORY = 6 * 2**30
"""Bytes of data that a command may take: one that reads a file without end is stopped there."""


@dataclass(frozen=True)
class Done:
    """How a command ended: `status` is None if it had to be stopped after its seconds."""

    status: int | None
    out: str
    err: str


def start_server() -> ForkServerContext:
    """Return a context whose processes begin with the libraries that commands import."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*LIBRARIES, *COMMANDS])
    return context


def run_command(
    context: ForkServerContext,
    output: Path,
    module: str,
    *arguments: object,
    folder: Path = ROOT,
    seconds: float = 60,
    quick: bool = False,
) -> Done:
    """Run `python -m module arguments` in `folder`; what it prints goes to files in `output`.

    `quick`: figures are put together and not drawn, and MLflow does not compare its database with its migrations.
    """
    words = [str(argument) for argument in arguments]
    process = context.Process(target=_run, args=(output, folder, module, words, quick))
    process.start()
    process.join(seconds)
    status = process.exitcode
    if status is None:
        process.kill()
        process.join()
    out, err = ((output / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
    return Done(status, out, err)


def _run(output: Path, folder: Path, module: str, arguments: list[str], quick: bool) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.chdir(folder)
    os.environ |= {"COLUMNS": "160", "NO_COLOR": "1"}
    if quick:
        mock.patch.object(Figure, "draw_without_rendering").start()
        mock.patch.object(Figure, "savefig", lambda figure, file, **given: Path(file).write_text("<svg/>")).start()
        mock.patch("mlflow.store.db.utils._verify_schema").start()
    with _redirected(output / "out", 1), _redirected(output / "err", 2):
        sys.argv = [module, *arguments]
        for name in (module, f"{module}.__main__"):  # imported ahead, and run now under the name __main__
            sys.modules.pop(name, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)


@contextlib.contextmanager
def _redirected(file: Path, descriptor: int) -> Iterator[None]:
    stream = sys.stdout if descriptor == 1 else sys.stderr
    with file.open("wb") as target:
        os.dup2(target.fileno(), descriptor)
    try:
        yield
    finally:
        stream.flush()
