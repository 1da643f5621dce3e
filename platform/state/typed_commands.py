"""Commands as people type them: with `unlearn` or `python -m`, to resume a sweep, and with its storage."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Iterable, Sequence

from trainables.common import typed_paths
from trainables.common.cli import default_storage
from trainables.storage.folder_storage import Storage


def spell_command(module: str, folder: str = "") -> str:
    """Return how to type a command: `unlearn sweep` in a process of `unlearn`, else `python -m platform.sweep`.

    `folder`: where that Python is, for a shell in which no environment is activated.
    """
    if sys.argv[0].startswith("unlearn "):
        return f"unlearn {module.rpartition('.')[2]}"
    return f"{folder}python -m {module}"


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


def split_arguments(command: str) -> list[str]:
    """Return the words after `python -m MODULE` or `unlearn COMMAND`."""
    words = shlex.split(command)
    return words[3 if words[1:2] == ["-m"] else 2 :]


def replace_settings(words: Iterable[str], typed: Sequence[str]) -> list[str]:
    """Return a command's words with others typed after them. Of a setting that both have, the latter counts."""
    kept, parts = [], iter(_split_settings(words))
    again = {value.partition("=")[0] for name, value in itertools.pairwise(_split_settings(typed)) if name == "--set"}
    for part in parts:
        pair = [part, next(parts, "")] if part == "--set" else [part]
        kept += [] if pair[1:] and pair[1].partition("=")[0] in again else pair
    return [*kept, *typed]


def _split_settings(words: Iterable[str]) -> list[str]:
    """Return words with `--set=A=B` as `--set`, `A=B`."""
    return [part for word in words for part in (word.split("=", 1) if word.startswith("--set=") else [word])]


def storage_option(store: Storage) -> str:
    """Return the option that names this storage, empty for the default one."""
    default = default_storage()
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
