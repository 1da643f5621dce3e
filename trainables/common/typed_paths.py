"""Folders, files and hub ids as people type them; a path that cannot be looked at counts as missing."""

import os
import re
from pathlib import Path

from trainables.common.errors import InputError

HUB_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9._-]{1,96}")
"""OWNER/NAME, by the hub's own rules."""
MAX_NAMES_LISTED = 30


def expand_home(place: str) -> Path:
    """Return the path with `~` replaced, as it is if there is no such user."""
    return Path(os.path.expanduser(place))


def quote_path(place: str) -> str:
    """Return a path for a message: `'x', looked for at /here/x`."""
    path = expand_home(place).absolute()
    return f"'{place}'" if str(path) == place else f"'{place}', looked for at {path}"


def make_path_relative(path: Path) -> Path:
    """Return a path as a person would type it: from the working directory if it lies below that, else from the root."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def is_folder(place: str | Path) -> bool:
    return os.path.isdir(expand_home(str(place)))


def is_file(place: str | Path) -> bool:
    return os.path.isfile(expand_home(str(place)))


def is_hub_id(place: str) -> bool:
    """Whether the hub could hold something of this name."""
    return bool(HUB_ID_PATTERN.fullmatch(place)) and ".." not in place and "--" not in place


def describe_folder(folder: Path) -> str:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise InputError(f"cannot look into '{folder}': {error.strerror}") from error
    more = f" and {len(names) - MAX_NAMES_LISTED} more" if len(names) > MAX_NAMES_LISTED else ""
    listed = names[:MAX_NAMES_LISTED]
    shown = [name if os.path.exists(folder / name) else f"{name} (a link to nothing)" for name in listed]
    return (", ".join(shown) or "nothing") + more
