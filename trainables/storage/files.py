"""Files written whole, by rename, so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.common.errors import InputError
from trainables.common.redaction import redact

if TYPE_CHECKING:
    import torch


def usable_folder(root: Path, field: str, writable: bool) -> Path:
    """The folder, made where something is to be written. Raises InputError, led by `field`, where it cannot be used."""
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            root.stat()
        if not writable:
            return root
        root.mkdir(parents=True, exist_ok=True)
        probe = root / f".probe-{uuid.uuid4().hex}"
        probe.write_text("x")
        probe.unlink()
    except OSError as error:
        wanted = "write to" if writable else "read"
        raise InputError(f"{field}: cannot {wanted} '{root}': {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{field}: '{root}' is no path: {error}") from error
    return root


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, None where the file is missing or damaged."""
    try:
        return as_object(path.read_bytes())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def as_object(content: bytes) -> dict[str, Any] | None:
    """A JSON object, None where the content is none."""
    try:
        value = json.loads(content.decode("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """`durable=False`: for what need not outlive a loss of power."""
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    _replace(path, lambda staging: staging.write_text(text, encoding="utf-8"), durable)


def write_text(path: Path, text: str) -> None:
    """Text for people, without the secrets that it may repeat."""
    shown = redact(text)
    _replace(path, lambda staging: staging.write_text(shown, encoding="utf-8", errors="backslashreplace"))


def write_rows(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Records as Parquet."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist(list(records))
    _replace(path, lambda staging: pyarrow.parquet.write_table(table, staging, compression="zstd"))


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Tensors as safetensors."""
    import safetensors.torch

    kept = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    _replace(path, lambda staging: safetensors.torch.save_file(kept, staging, metadata=metadata))


def read_rows(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet

    return pyarrow.parquet.read_table(path).to_pylist()


def check_writable(path: Path, field: str) -> None:
    """Raise InputError where a file cannot be written there: said before the work, not after it."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"{field}: cannot write to '{path}': {error.strerror}") from error


def publish(staging: Path, folder: Path) -> None:
    """Rename a whole folder into place; where another process was first, keep its one."""
    try:
        staging.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _replace(path: Path, write: Callable[[Path], Any], durable: bool = True) -> None:
    """Write beside `path`, flush to disk, rename over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        write(staging)
        if durable:
            with staging.open("rb") as stream:
                os.fsync(stream.fileno())
        os.replace(staging, path)
    finally:
        staging.unlink(missing_ok=True)
