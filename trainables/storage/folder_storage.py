"""Results on disk: written by rename, so that a reader never sees half a file. The storage is the truth."""

import datetime
import errno
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from trainables.common.errors import InputError
from trainables.common.regular_files import read_bytes
from trainables.config.types import IsoTimeText, Name
from trainables.storage import file_names
from trainables.storage.atomic_files import ensure_folder, read_json, write_json
from trainables.storage.file_names import CHECKPOINT, CONFIG, EVALUATIONS, LOST, META_FILE, PROGRESS, RESULT, WEIGHTS

DISK_ERROR_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS)
"""Error numbers of a disk that is full or gone."""
MIN_FREE_DISK_BYTES = 2**20


FiniteNumber = Annotated[float, Field(allow_inf_nan=False, strict=True)]
StoredMetrics = dict[Name, FiniteNumber | None]


class _Named(BaseModel):
    name: Name


class _Benchmark(_Named):
    split: Name


class StoredConfig(BaseModel):
    """A trial's configuration, as far as commands go by it."""

    method: Name
    rectifier: _Named
    benchmark: _Benchmark
    target: dict[str, Any] = {}
    training: dict[str, Any] = {}
    seed: int = 0


class _Error(BaseModel):
    kind: str
    message: str


class StoredEvaluation(BaseModel):
    """The evaluation of a reference model."""

    id: Name
    metrics: StoredMetrics
    halves: list[StoredMetrics] | None = None


class StoredResult(StoredEvaluation):
    """A trial's result, as far as commands go by it."""

    status: Literal["finished", "collapsed", "diverged", "failed", "out_of_memory", "lost"]
    config: StoredConfig
    started: IsoTimeText
    seconds: dict[Name, FiniteNumber] = {}
    commit: Name | None = None
    versions: dict[Name, Name] = {}
    error: _Error | None = None


class Storage:
    """A folder that all machines see: trials/, sweeps/, shared/, reports/ and mlflow.db, below `root`.

    ObjectStorage overrides the methods that do nothing here.
    """

    is_remote = False
    """Whether each machine has a copy of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.location = str(root)
        """What another process opens this storage by."""

    def check_access(self, writable: bool) -> None:
        """Raise InputError if the storage cannot be read or, if asked, be written; then the folder is made, too."""
        if writable and set("?#%") & set(str(self.root)):
            raise InputError(f"--storage: '{self.root}' holds ?, # or %, which MLflow cannot have in an address")
        ensure_folder(self.root, "--storage", writable)

    # Where things lie

    def trial(self, trial_id: str) -> Path:
        return resolve_path_inside(self.root / "trials", trial_id)

    def sweep(self, name: str, digest: str) -> Path:
        return resolve_path_inside(self.root / "sweeps", f"{name}-{digest}.json")

    def lock(self, name: str, digest: str) -> Path:
        return resolve_path_inside(self.root / "sweeps", f"{name}-{digest}.lock")

    def model(self, recipe_id: str) -> Path:
        return resolve_path_inside(self.root / "shared" / "models", recipe_id)

    def direction(self, recipe_id: str) -> Path:
        return resolve_path_inside(self.root / "shared" / "directions", recipe_id)

    def data_folder(self, key: str) -> Path:
        return resolve_path_inside(self.root / "shared" / "data", key)

    def evaluation(self, key: str) -> Path:
        return resolve_path_inside(self.root / "shared" / "evaluations", key)

    def attack_results_folder(self, key: str) -> Path:
        return resolve_path_inside(self.root / "stress", key)

    def uri(self, path: Path) -> str:
        return path.as_uri()

    def fetch_local_path(self, place: str) -> str:
        """Return where a path lies here, fetched, if it is of the storage's copy on any machine; else as it is.

        Of a folder that was moved, what lies in it now.
        """
        for part in ("shared", "trials") if place.startswith("/") else ():
            _, found, name = place.rpartition(f"/{part}/")
            here = self.root / part / name
            if found and ".." not in here.parts and not Path(place).exists() and here.exists():
                return str(here)
        return place

    # Trials

    def download_sweeps_and_results(self, trial_ids: Iterable[str] = ()) -> None:
        """Download the files of all sweeps and the results of these trials."""

    def has_result(self, trial_id: str) -> bool:
        """Whether a trial has a result, readable or not."""
        return (self.trial(trial_id) / RESULT).is_file()

    def has_weights(self, trial_id: str) -> bool:
        return self.exists(self.trial(trial_id) / WEIGHTS)

    def result(self, trial_id: str) -> dict[str, Any] | None:
        return read_result_of_its_folder(self.trial(trial_id) / RESULT, StoredResult)

    def find_export(self, trial_id: str) -> Path | None:
        """Return the model folder that was exported of a trial's last run, None without one."""
        folder, result = self.root / "exports" / trial_id, self.result(trial_id)
        made = ((self.read_json(folder / file_names.EXPORT_FACTS_FILE) or {}).get("made_with") or {}).get("started")
        return folder if self.exists(folder) and (result is None or made == result.get("started")) else None

    def has_unfinished_run(self, trial_id: str) -> bool:
        """Whether a process that is at a trial, or was killed there, has left its checkpoint or its progress."""
        folder = self.trial(trial_id)
        return any(path.exists() or self.exists(path) for path in (folder / CHECKPOINT / META_FILE, folder / PROGRESS))

    def read_evaluation(self, key: str) -> dict[str, Any] | None:
        return read_result_of_its_folder(self.evaluation(key) / RESULT, StoredEvaluation)

    def fetch_trial(self, trial_id: str) -> None:
        """Fetch all files of a trial, before it begins or goes on here."""

    def write_trial_config(self, trial_id: str, config: dict[str, Any]) -> None:
        """Write the configuration of a trial that begins here."""
        write_json(self.trial(trial_id) / CONFIG, config)

    def push_trial(self, trial_id: str) -> bool:
        """Send a trial that has ended, its result last; whether the storage took it."""
        return True

    def push_unsent_results(self, trial_ids: Iterable[str]) -> None:
        """Send results that were made here and could not be sent."""

    def try_download_trial(self, trial_id: str) -> bool:
        """Download a trial that has ended on some machine; whether the storage answered."""
        return True

    def publish_checkpoint(self, folder: Path, tag: str) -> None:
        """Make a checkpoint count whose parts are all sent, with the evaluations before it, and drop older ones."""

    # Files and folders

    def fetch(self, path: Path) -> None:
        """Download a file, or a folder that never changes, unless it is here."""

    def push(self, path: Path, *, changing: bool = False) -> None:
        """Send a file or a folder; `changing`: a folder that changes, or that several machines work on."""

    def try_push(self, path: Path) -> bool:
        """Send a file or a folder if the storage answers; whether it did."""
        return True

    def read_json(self, path: Path) -> dict[str, Any] | None:
        """Return a JSON object, fetched if it is not here; None if the file is missing or damaged."""
        self.fetch(path)
        return read_json(path)

    def read_current_bytes(self, path: Path) -> bytes | None:
        """Return what a file that any machine may change holds now, None if there is none."""
        try:
            return read_bytes(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, path: Path) -> bool:
        """Whether there is a file, or a folder that never changes, here or elsewhere."""
        return path.exists()

    def move(self, source: Path, target: Path) -> None:
        """Move a file or folder for everybody, if there is one."""
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)

    def remove(self, path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def nearest_existing_folder(self) -> Path:
        return next(folder for folder in (self.root, *self.root.parents) if folder.exists())

    def count_free_bytes(self) -> int:
        return shutil.disk_usage(self.nearest_existing_folder()).free


def read_result_of_its_folder(path: Path, kind: type[StoredEvaluation]) -> dict[str, Any] | None:
    """Return the result at ID/result.json of a trial or an evaluation, None unless it can be read and is of that ID."""
    found = read_validated_json(path, kind)
    return found if found and found["id"] == path.parent.name else None


def read_validated_json(path: Path, kind: type[BaseModel]) -> dict[str, Any] | None:
    """Return the JSON object in a file, None if there is none that `kind` takes."""
    try:
        found = read_json(path)
        kind.model_validate(found)
    except (ValidationError, RecursionError):
        return None
    return found


def resolve_path_inside(folder: Path, name: str) -> Path:
    """Return the path of a name in a folder. Raises InputError for one that leads out of it."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise InputError(f"'{name}' names nothing in {folder}: it is a path, not a name")
    return folder / name


def remove_trial_leftovers(folder: Path) -> None:
    """Remove what a kill right after the result leaves of a trial; the checkpoint of a lost trial stays."""
    if (folder / CHECKPOINT).exists() and (read_json(folder / RESULT) or {}).get("status") == LOST:
        return
    for path in folder.iterdir():
        if path.name in (CHECKPOINT, EVALUATIONS, PROGRESS) or path.name.startswith("."):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def is_disk_error(error: BaseException | None, store: Storage) -> bool:
    """Whether the disk is the cause of an error: a cause in its chain says so, or there is no room (torch hides it)."""
    if store.count_free_bytes() < MIN_FREE_DISK_BYTES:
        return True
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_ERROR_NUMBERS:
            return True
        error = error.__cause__ or error.__context__
    return False


def move_to_dated_folder(paths: Iterable[Path], store: Storage, *, by_folder: bool = False) -> Path:
    """Move files or folders (`by_folder`: with their folders' names) into a new dated folder, which is returned."""
    place = store.root / "set_aside" / datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")
    for path in paths:
        store.move(path, (place / path.parent.name if by_folder else place) / path.name)
    return place
