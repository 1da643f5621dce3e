"""Commands of a sweep as people type them: the one that was typed, and those that go on from it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence

from trainables.common import typed_paths
from trainables.common.cli import DEFAULT_STORAGE, STORAGE_VARIABLE
from trainables.common.redaction import redact
from trainables.storage.folder_storage import Storage


def typed_command(arguments: Sequence[str] | None = None) -> str:
    """Return the command that starts a sweep with these arguments, or else with this process's, without secrets."""
    words = sys.argv[1:] if arguments is None else arguments
    return f"python -m platform.sweep {shlex.join(map(redact, words))}"


def resume_command(command: str, storage: str | None = None) -> str:
    """Return the command that resumes what `command` began. `storage`: an option that replaces the command's own."""
    names = ("--reason",) if storage is None else ("--reason", "--storage")
    kept = drop_options(shlex.split(command), names, ("--new", "--resume", "--retry-failed"))
    return f"{shlex.join([*kept, '--resume'])}{storage or ''}"


def drop_options(words: Iterable[str], names: Sequence[str], flags: Sequence[str] = ()) -> list[str]:
    """Return a command's words without the options `names`, which take a value, and `flags`, which take none."""
    kept, parts = [], iter(words)
    for part in parts:
        if part in names:
            next(parts, None)
        elif part.partition("=")[0] not in (*names, *flags):
            kept.append(part)
    return kept


def storage_option(store: Storage) -> str:
    """Return the option that names this storage, empty for the default one."""
    default = os.environ.get(STORAGE_VARIABLE) or DEFAULT_STORAGE
    if store.is_remote:
        return "" if store.location == default else f" --storage {shlex.quote(store.location)}"
    same = "://" not in default and store.root == typed_paths.expand(default).absolute()
    return "" if same else f" --storage {shlex.quote(str(typed_paths.shorten(store.root)))}"


def list_commands(earlier: Iterable[str], command: str) -> tuple[str, ...]:
    """Return the commands whose trials a sweep's file lists, each once, in the order in which they were first typed."""
    found: dict[str, str] = {}
    for one in (*earlier, command):
        found.setdefault(resume_command(one), one)
    return tuple(found.values())
