"""The fetching of what a sweep takes from the hub, once, into its storage (trainables.data.hub_folders says where)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import Timeout

from platform.plan import hub_requirements
from platform.preparation.hub_repository import (
    PATTERNS,
    HubUnreachable,
    choose_files,
    download,
    find_damage,
    look_up,
    make_snapshot,
)
from trainables.benchmarks import lm_eval_adapter
from trainables.common.errors import InputError
from trainables.common.wording import format_size
from trainables.data.hub_folders import HubRequirement, HubSnapshot, hub_root, lock, read_pin, write_pin
from trainables.storage.atomic_files import publish
from trainables.storage.folder_storage import Storage

PrintLine = Callable[[str], None]


class Hub:
    """Fetches into a storage. `unreachable`: why the hub is not asked any more."""

    def __init__(self, store: Storage, print_line: PrintLine) -> None:
        self.store = store
        self.root = hub_root(store)
        self.print_line = print_line
        self.unreachable: str | None = None

    def fetch(self, required: Sequence[HubRequirement]) -> None:
        """Fetch what the storage does not have. Raises InputError: what to accept, or, as printed before, to bring."""
        missing = [requirement for requirement in required if not self._fetch(requirement)]
        for requirement in missing:
            self.print_line(f"needs: {hub_requirements.describe_requirement(requirement, self.store)}")
        if missing:
            names = ", ".join(requirement.label for requirement in missing)
            raise InputError(
                f"hub: {self.unreachable}, and the storage has not: {names}; what to bring is said above, and by "
                "--dry-run"
            )

    def _has(self, requirement: HubRequirement) -> bool:
        pin = read_pin(requirement, self.store)
        return pin is not None and self.store.exists(self.root / pin.folder)

    def _fetch(self, requirement: HubRequirement) -> bool:
        """Return whether the storage has it by now."""
        if self._has(requirement):
            return True
        repository = requirement
        if requirement.kind == "tasks":
            source = lm_eval_adapter.source_of(requirement.id)
            if source is None:
                self.print_line(f"{requirement.label}: lm-eval fetches them itself, on each machine")
                return True
            repository = replace(requirement, kind="datasets", id=source[0])
        with self._lock(repository):
            return (
                self._has(requirement)
                or self._take_brought(requirement)
                or self._download(requirement, repository)
                or self._take_cached(requirement, repository)
            )

    def _lock(self, repository: HubRequirement) -> AbstractContextManager[Any]:
        """Wait until no other process of this machine fetches the repository."""
        key = lock(f"{repository.key}.lock", self.store)
        try:
            return key.acquire(timeout=1)
        except Timeout:
            self.print_line(f"{repository.label}: another start is fetching it; waiting for that")
            return key.acquire()

    def _take_brought(self, requirement: HubRequirement) -> bool:
        """Return whether a person put the files where messages say. Raises InputError where a model is damaged."""
        folder = self.root / requirement.key
        if not folder.is_dir():
            return False
        if requirement.kind == "models" and (damage := find_damage("models", folder)):
            raise InputError(f"{requirement.field}: {damage}; bring it again")
        files = sorted(folder.glob("[!.]*"))
        self._keep(requirement, make_snapshot(requirement, requirement.revision or "main", None, "brought", files))
        self.print_line(f"{requirement.label}: taken from {folder}")
        return True

    def _download(self, requirement: HubRequirement, repository: HubRequirement) -> bool:
        """Return False where the hub does not answer. Raises InputError where it refuses, or files came damaged."""
        if self.unreachable:
            return False
        pin = read_pin(requirement, self.store)  # its folder was lost: the same commit once more
        revision = requirement.revision or "main"
        try:
            snapshot = replace(look_up(repository, (pin and pin.commit) or revision), revision=revision)
            folder = self.root / snapshot.folder
            if not folder.is_dir() and not self.store.exists(folder):  # else an earlier start could not send it
                self._download_files(repository, snapshot)
        except HubUnreachable as error:
            self.unreachable = str(error)
            return False
        self._keep(requirement, snapshot)
        return True

    def _download_files(self, repository: HubRequirement, snapshot: HubSnapshot) -> None:
        folder = self.root / snapshot.folder
        staging = folder.with_name(f".{folder.name}.part")  # an interrupted download goes on there
        present = sum(path.stat().st_size for path in staging.rglob("*") if path.is_file())  # parts of files, too
        lacking = max(0, sum(file["size"] or 0 for file in snapshot.files.values()) - present)
        if lacking > (free := self.store.free()):
            needed = f"{repository.label} takes {format_size(lacking)}, {format_size(free)} are free"
            raise InputError(f"--storage: {needed} at '{self.store.root}'")
        at = f"{repository.id} at {str(snapshot.commit)[:12]}"
        self.print_line(f"fetching {at}: {len(snapshot.files)} files, {format_size(lacking)}")
        damaged = download(repository, snapshot, staging)
        if damaged:
            raise InputError(
                f"{repository.field}: {', '.join(damaged)} of {at} came damaged; start again to fetch it again"
            )
        publish(staging, folder)

    def _take_cached(self, requirement: HubRequirement, repository: HubRequirement) -> bool:
        """Return whether this machine's cache of Hugging Face's libraries has a whole model or tokenizer."""
        from huggingface_hub import snapshot_download

        if repository.kind == "datasets":
            return False
        patterns, revision = PATTERNS[repository.kind], repository.revision or "main"
        try:
            found = snapshot_download(repository.id, revision=revision, allow_patterns=patterns, local_files_only=True)
        except OSError:  # it has no such snapshot, or not all of it
            return False
        cached = Path(found)
        if find_damage(repository.kind, cached):
            return False
        names = choose_files(repository, [path.name for path in cached.iterdir()])
        snapshot = make_snapshot(repository, revision, cached.name, "cache", [cached / name for name in names])
        staging = self.root / f".{snapshot.folder}.part"
        shutil.copytree(cached, staging, ignore=lambda _, every: set(every) - set(names), dirs_exist_ok=True)
        publish(staging, self.root / snapshot.folder)
        self._keep(requirement, snapshot)
        self.print_line(f"{repository.label}: taken from this machine's cache at {cached}")
        return True

    def _keep(self, requirement: HubRequirement, snapshot: HubSnapshot) -> None:
        if (self.root / snapshot.folder).is_dir():
            self.store.push(self.root / snapshot.folder)
        write_pin(requirement, snapshot, self.store)
