"""How machines see what one of them wrote into a storage, and get what others wrote."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

V = TypeVar("V")


class Sharing:
    """A folder that all machines see: most of it is nothing to do.

    Code reads and writes files below `root`, and calls these where others are to see what was written, or what they
    wrote is needed. trainables.storage.object_storage does both where `root` is a copy of a storage elsewhere.
    """

    root: Path
    copied = False
    """Whether `root` is a copy that each machine has its own of."""

    @property
    def location(self) -> str:
        """What another process opens this storage by."""
        return str(self.root)

    def uri(self, path: Path) -> str:
        """The address of something in it."""
        return path.as_uri()

    def refresh(self) -> None:
        """Look at what there is; bring the sweeps' files and the evaluations of reference models."""

    def catch_up(self, trial_ids: Iterable[str]) -> None:
        """Look at what there is, and bring these trials."""
        self.refresh()
        self.bring(trial_ids)

    def look_again(self) -> None:
        """Look at what there is, if that is possible now."""

    def bring(self, trial_ids: Iterable[str]) -> None:
        """The trials' files as `refresh` saw them; results of this machine that could not be sent are sent now."""

    def look_at_trial(self, trial_id: str) -> bool:
        """Look at one trial and bring its files: it has ended somewhere. Whether that was possible."""
        return True

    def fetch_trial(self, trial_id: str) -> None:
        """All that there is of a trial, before it begins or goes on here."""

    def began(self, trial_id: str) -> None:
        """From now on the trial's truth lies here, until it is pushed."""

    def push_trial(self, trial_id: str) -> None:
        """Show a trial that has ended, its result last; what cannot be sent now stays here and is sent later."""

    def sent(self, trial_id: str) -> bool:
        """Whether others see a trial that has ended here."""
        return True

    def push_checkpoint(self, folder: Path, tag: str) -> bool:
        """Show what this machine wrote of a checkpoint; whether that was possible."""
        return True

    def finish_checkpoint(self, folder: Path, tag: str) -> None:
        """Make a checkpoint count whose parts are all there, and the evaluations before it."""

    def fetch(self, path: Path) -> None:
        """Bring a file, or a folder that never changes, unless it is here."""

    def update(self, folder: Path, starts: tuple[str, ...] = ("",)) -> None:
        """Bring what others made of something that several machines make: files whose names start so."""

    def push(self, path: Path) -> None:
        """Show a file, or a folder that never changes."""

    def push_parts(self, folder: Path, starts: tuple[str, ...] = ("",)) -> None:
        """Show what this machine made of something that several machines make: files whose names start so."""

    def tell(self, path: Path) -> bool:
        """Show a file if that is possible now."""
        return True

    def remove(self, path: Path) -> None:
        """Delete a file or folder for everybody."""
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def ended(self) -> list[str]:
        """Ids of the trials that have a result, as `refresh` saw them."""
        return sorted(path.parent.name for path in (self.root / "trials").glob("*/result.json"))

    def emptiness(self) -> str:
        """Why it may hold nothing of what was asked for, in words."""
        return "it holds none" if self.copied or self.root.is_dir() else "there is no such folder"

    def there(self, path: Path) -> bool:
        """Whether there is a file, or a folder that never changes, here or elsewhere."""
        return path.exists()

    def move(self, source: Path, target: Path) -> bool:
        """Move a file or folder for everybody; whether there was one."""
        if not source.exists():
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        return True

    def size(self, path: Path) -> int:
        """Bytes of all files below; what vanishes meanwhile counts as nothing."""
        return _size(path)

    def existing(self) -> Path:
        """The folder that is there already, `root` itself or the nearest one above it."""
        return next(folder for folder in (self.root, *self.root.parents) if folder.exists())

    def free(self) -> int:
        """Bytes free on the disk of this machine's files."""
        return shutil.disk_usage(self.existing()).free

    def here(self, value: V) -> V:
        """A configuration with the paths of this machine: of what the storage holds, and of what it has of the hub."""
        from trainables.benchmarks.localize import localize

        return localize(value, self)


def _size(folder: Path) -> int:
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                total += _size(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else entry.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        pass
    return total
