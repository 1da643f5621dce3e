"""Results on disk: written by rename, so that a reader never sees half a file. The storage is the truth."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainables.common import paths as common_paths
from trainables.common.errors import InputError
from trainables.common.redaction import redact
from trainables.sharing import Sharing

if TYPE_CHECKING:
    import torch

RESULT, CONFIG, STEPS, ROWS, ERROR = "result.json", "config.json", "steps.parquet", "evaluation.parquet", "error.txt"
PROGRESS, RETRY = "progress.json", "retry.json"
CHECKPOINT, EVALUATIONS, WEIGHTS = "checkpoint", "evaluations", "weights"
META = "meta.json"
"""Makes a checkpoint count; written last."""
UNFINISHED = (CHECKPOINT, EVALUATIONS, PROGRESS)
"""What a trial has only while it is under way."""
EVALUATED = ("finished", "collapsed")
"""Outcomes that come with metrics."""
LOST = "lost"
"""Outcome of a trial that its process, machine or disk gave up on: it goes on from its checkpoint when resumed."""
FAILURES = ("failed", "out_of_memory", LOST)
"""Outcomes that are accidents; every other one (`finished`, `diverged`, ...) is a result."""
OUTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS)
"""What a disk says that has no room, or is not there any more."""
NO_ROOM = 2**20
"""Bytes free."""

DEFAULT, VARIABLE = "runs", "UNLEARN_STORAGE"
"""Where results are if nobody says, and what says it once for every command of a machine."""
Location = Annotated[
    str, typer.Option("--storage", envvar=VARIABLE, help="Folder or address (s3://...) of the results.")
]
"""The option of every command that reads or writes results."""


class Storage(Sharing):
    """A folder: trials/, sweeps/, shared/, reports/ and mlflow.db."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def trial(self, trial_id: str) -> Path:
        return _inside(self.root / "trials", trial_id)

    def sweep(self, name: str, digest: str) -> Path:
        return _inside(self.root / "sweeps", f"{name}-{digest}.json")

    def lock(self, name: str, digest: str) -> Path:
        """Where the driver of a sweep says that it runs."""
        return _inside(self.root / "sweeps", f"{name}-{digest}.lock")

    def spent(self, name: str, digest: str) -> Path:
        """What a sweep has spent in all its starts."""
        return _inside(self.root / "sweeps", f"{name}-{digest}.spent")

    def model(self, recipe_id: str) -> Path:
        return _inside(self.root / "shared" / "models", recipe_id)

    def data(self, key: str) -> Path:
        return _inside(self.root / "shared" / "data", key)

    def evaluation(self, key: str) -> Path:
        return _inside(self.root / "shared" / "evaluations", key)

    def has(self, trial_id: str) -> bool:
        """Whether a trial has a result, readable or not."""
        return (self.trial(trial_id) / RESULT).is_file()

    def under_way(self, trial_id: str) -> bool:
        """Whether a process that is at a trial, or was killed there, has left its checkpoint or its progress."""
        folder = self.trial(trial_id)
        return any(path.is_file() or self.there(path) for path in (folder / CHECKPOINT / META, folder / PROGRESS))

    def result(self, trial_id: str) -> dict[str, Any] | None:
        """A finished trial's result, None where there is none that can be read."""
        return read_json(self.trial(trial_id) / RESULT)


def _inside(folder: Path, name: str) -> Path:
    """What is called `name` in a folder. Raises InputError for a name that leads out of it."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise InputError(f"'{name}' names nothing in {folder}: it is a path, not a name")
    return folder / name


def is_outage(error: BaseException | None, store: Storage) -> bool:
    """Whether an error, or one that led to it, is the disk's: it says so, or there is no room (torch hides that)."""
    if store.free() < NO_ROOM:
        return True
    while error is not None:
        if isinstance(error, OSError) and error.errno in OUTAGES:
            return True
        error = error.__cause__ or error.__context__
    return False


def set_aside(paths: Iterable[Path], store: Storage) -> Path:
    """Move files or folders out of the way, under a dated folder, which is returned; nothing is deleted."""
    place = dated_place(store)
    for path in paths:
        store.move(path, place / path.name)
    return place


def dated_place(store: Storage) -> Path:
    """The folder for what is set aside just now."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")
    return store.root / "set_aside" / stamp


def open_storage(location: str, *, writable: bool = True) -> Storage:
    """The storage at a folder, a file:// URI or another address. Raises InputError where it cannot be used."""
    if _is_elsewhere(location):
        from trainables import working_copy

        return working_copy.open_copy(location, writable=writable, check=True)
    return Storage(
        usable_folder(common_paths.expand(location.removeprefix("file://")).absolute(), "--storage", writable)
    )


def reopen(location: str) -> Storage:
    """The storage that another process of this program has opened."""
    if _is_elsewhere(location):
        from trainables import working_copy

        return working_copy.open_copy(location, writable=True, check=False)
    return Storage(Path(location))


def default() -> str:
    """What a command takes for --storage without being told."""
    return os.environ.get(VARIABLE) or DEFAULT


def _is_elsewhere(location: str) -> bool:
    return "://" in location and not location.startswith("file://")


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
