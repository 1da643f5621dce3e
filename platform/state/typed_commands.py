"""Commands of a sweep as people type them: the one that was typed, and the one that goes on from it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence

from trainables.common import typed_paths
from trainables.common.cli import DEFAULT_STORAGE, STORAGE_VARIABLE
from trainables.common.redaction import redact
from trainables.storage.folder_storage import Storage


def sweep_command(arguments: Sequence[str] | None = None) -> str:
    """Return the command that starts a sweep with these arguments, or else with this process's, without secrets."""
    words = sys.argv[1:] if arguments is None else arguments
    return f"python -m platform.sweep {shlex.join(map(redact, words))}"


def resume_command(command: str, storage: str | None = None) -> str:
    """Return the command that resumes what `command` began. `storage`: an option that replaces the command's own."""
    taking = "reason" if storage is None else "reason|storage"
    dropped = rf" --(new|resume|retry-failed|({taking})[ =]('[^']*'|\S)+)(?!\S)"
    return f"{re.sub(dropped, '', command)} --resume{storage or ''}"


def storage_option(store: Storage) -> str:
    """Return the option that names this storage, empty for the default one."""
    default = os.environ.get(STORAGE_VARIABLE) or DEFAULT_STORAGE
    if store.location == default or store.root == typed_paths.expand_home(default).absolute():
        return ""
    place = store.location if store.is_remote else typed_paths.shorten_path(store.root)
    return f" --storage {shlex.quote(str(place))}"
