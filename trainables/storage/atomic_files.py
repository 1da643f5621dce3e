"""Files written whole, by rename, so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from trainables.common.errors import InputError
from trainables.common.redaction import redact

CHECKSUM = "checksum"
"""In a JSON object that commands rely on: of the rest, so that a flipped digit is noticed."""
WHOLE = ".whole"
"""In a folder that is made once and shared: its files and their sizes, written last."""
SUMS = ".sha256"
"""Beside it: SHA-256 of every file, as `sha256sum --check` reads it."""


def usable_folder(root: Path, field: str, writable: bool) -> Path:
    """Return the folder, made if `writable`, for this user alone. Raises InputError, which names `field`."""
    try:
        if writable:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            _probe(root / "storage")
        else:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                root.stat()
    except OSError as error:
        wanted = "write to" if writable else "read"
        raise InputError(f"{field}: cannot {wanted} '{root}': {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{field}: '{root}' is no path: {error}") from error
    return root


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object, None if the file is missing or damaged."""
    try:
        return parse_object(path.read_bytes())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def parse_object(content: bytes) -> dict[str, Any] | None:
    """Return a JSON object, None if the content is none, or another one than its checksum was made of."""
    try:
        value = json.loads(content.decode("utf-8"))
        whole = isinstance(value, dict) and (CHECKSUM not in value or value[CHECKSUM] == _checksum(value))
    except (ValueError, RecursionError):
        return None
    return value if whole else None


def _checksum(value: dict[str, Any]) -> str:
    """Return SHA-256 of an object without its checksum, in canonical form."""
    text = json.dumps({key: item for key, item in value.items() if key != CHECKSUM}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: Path, value: Any, *, durable: bool = True, checked: bool = False) -> None:
    """Write a value as JSON; `durable=False` if it need not outlive a loss of power. `checked`: with its checksum."""
    if checked:
        value = value | {CHECKSUM: _checksum(json.loads(json.dumps(value, allow_nan=False)))}
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    _replace(path, lambda staging: staging.write_text(text, encoding="utf-8"), durable)


def write_text(path: Path, text: str) -> None:
    """Write text for people, its secrets redacted."""
    shown = redact(text)
    _replace(path, lambda staging: staging.write_text(shown, encoding="utf-8", errors="backslashreplace"))


def write_rows(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write records as Parquet."""
    import pyarrow
    import pyarrow.parquet

    rows = list(records)
    names = list(dict.fromkeys(name for row in rows for name in row))  # pyarrow takes those of the first row
    table = pyarrow.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
    _replace(path, lambda staging: pyarrow.parquet.write_table(table, staging, compression="zstd"))


def read_rows(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet

    return pyarrow.parquet.read_table(path).to_pylist()


def check_writable(path: Path, field: str) -> None:
    """Raise InputError, before the work, if a file cannot be written."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        _probe(path)
    except OSError as error:
        raise InputError(f"{field}: cannot write to '{path}': {error.strerror}") from error


def publish(staging: Path, folder: Path) -> None:
    """Rename a folder into place, or drop it if another process was first."""
    try:
        staging.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the bytes of every file below, by relative name, hidden files left out."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def has_files(folder: Path, sizes: dict[str, int]) -> bool:
    """Whether a folder has all these files, each of its size; other files do not matter."""
    return sizes.items() <= sizes_of(folder).items()


def mark_complete(folder: Path) -> None:
    """Flush all files of a folder to disk, then list them in it, before it is published."""
    sizes = sizes_of(folder)
    for name in sizes:
        _flush(folder / name)
    write_text(folder / SUMS, "".join(f"{sha256(folder / name)}  {name}\n" for name in sizes))
    write_json(folder / WHOLE, sizes)


def find_changed(folder: Path) -> list[Path]:
    """Return the files that have gone or changed since `mark_complete`; none where it wrote no sums."""
    if not (folder / SUMS).exists():
        return []
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
        sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (ValueError, OSError):
        return [folder / SUMS]
    if sums.keys() != (read_json(folder / WHOLE) or {}).keys():
        return [folder / SUMS]
    return [file for name, found in sums.items() if not (file := folder / name).is_file() or sha256(file) != found]


def sha256(file: Path) -> str:
    """Return SHA-256 of a file's content in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_complete(folder: Path) -> bool:
    """Whether a folder has the files that it lists; one of an earlier version lists none."""
    sizes = read_json(folder / WHOLE)
    return not (folder / WHOLE).exists() if sizes is None else has_files(folder, sizes)


def _probe(path: Path) -> None:
    """Write and delete a file beside `path`, in a folder that is made if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    probe = path.with_name(f".probe-{uuid.uuid4().hex}")
    probe.write_text("x")
    probe.unlink()


def _flush(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def _replace(path: Path, write: Callable[[Path], Any], durable: bool = True) -> None:
    """Write beside `path`, flush to disk, rename over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        write(staging)
        if durable:
            _flush(staging)
        os.replace(staging, path)
    finally:
        staging.unlink(missing_ok=True)
