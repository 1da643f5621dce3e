"""Files written whole, by rename, so that a reader never sees half of one."""

import contextlib
import errno
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from trainables.common.errors import InputError
from trainables.common.fingerprints import RECIPE_FILE, hash_folder
from trainables.common.redaction import redact
from trainables.common.regular_files import read_bytes, read_parquet


def ensure_folder(root: Path, field: str, writable: bool) -> Path:
    """Return the folder, made if `writable`, for this user alone. Raises InputError, which names `field`."""
    try:
        if writable:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            _probe(root / "storage")
        else:
            root.exists()
    except OSError as error:
        wanted = "write to" if writable else "read"
        raise InputError(f"{field}: cannot {wanted} '{root}': {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{field}: '{root}' is no path: {error}") from error
    return root


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object, None if the file is missing or holds none. Raises InputError as `read_bytes`."""
    try:
        return parse_json_object(read_bytes(path))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def parse_json_object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write a value as JSON; `durable=False` if it need not outlive a loss of power."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n", durable=durable)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write text as it is, what UTF-8 cannot have escaped."""
    how = {"encoding": "utf-8", "errors": "backslashreplace"}
    replace_file(path, lambda staging: staging.write_text(text, **how), durable)


def write_redacted_text(path: Path, text: str) -> None:
    """Write text for people, its secrets redacted."""
    write_text(path, redact(text))


def write_parquet_rows(path: Path, records: Iterable[dict[str, Any]]) -> None:
    import pyarrow.parquet

    rows = list(records)
    names = list(dict.fromkeys(name for row in rows for name in row))  # pyarrow takes those of the first row
    table = pyarrow.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
    replace_file(path, lambda staging: pyarrow.parquet.write_table(table, staging, compression="zstd"))


def read_parquet_rows(path: Path) -> list[dict[str, Any]]:
    return read_parquet(path).to_pylist()


def write_recipe_file(folder: Path, note: dict[str, Any]) -> None:
    """Write how a folder of ours was made, and a hash of what it holds, which `check_folder_unchanged` compares."""
    write_json(folder / RECIPE_FILE, note | {"content": hash_folder(folder)})


def check_folder_unchanged(folder: Path, field: str) -> None:
    """Raise InputError where a folder of ours holds other files than were written there; one without a note passes."""
    noted = (read_json(folder / RECIPE_FILE) or {}).get("content")
    if noted is not None and noted != hash_folder(folder):
        changed = f"'{folder}' holds other files than were written there"
        raise InputError(f"{field}: {changed}; move it away, and a start makes it again")


def check_file_writable(path: Path, field: str) -> None:
    """Raise InputError, before the work, if a file cannot be written."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        _probe(path)
    except OSError as error:
        raise InputError(f"{field}: cannot write to '{path}': {error.strerror}") from error


def publish_folder(staging: Path, folder: Path) -> None:
    """Flush a folder's files to disk and rename it into place, or drop it if another process was first."""
    for file in filter(Path.is_file, staging.rglob("*")):
        _flush(file)
    try:
        staging.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextlib.contextmanager
def write_folder(folder: Path) -> Iterator[Path]:
    """Yield where to make a folder, which is published when it is whole, and goes if that fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    try:
        yield staging
        publish_folder(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _probe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    probe = path.with_name(f".probe-{uuid.uuid4().hex}")
    probe.write_text("x")
    probe.unlink()


def _flush(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def replace_file(path: Path, write: Callable[[Path], Any], durable: bool = True) -> None:
    """Let `write` write a file, which takes the place of another one when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        write(staging)
        if durable:
            _flush(staging)
        os.replace(staging, path)
    finally:
        staging.unlink(missing_ok=True)
