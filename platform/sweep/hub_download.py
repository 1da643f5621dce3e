"""The fetching of what a sweep takes from the hub, once, into its storage (trainables.data.hub_folders says where)."""

from __future__ import annotations

import glob
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import Timeout
from tqdm.auto import tqdm

from platform.plan import hub_requirements
from trainables.benchmarks import lm_eval_adapter
from trainables.common import provenance
from trainables.common.errors import InputError, first_line
from trainables.common.wording import format_size
from trainables.data.hub_folders import HubRequirement, HubSnapshot, folder_name, hub_root, lock, read_pin, write_pin
from trainables.storage.atomic_files import publish
from trainables.storage.folder_storage import Storage

PrintLine = Callable[[str], None]
SINGLE, INDEX, SHARDS = "model.safetensors", "model.safetensors.index.json", "model-*.safetensors"
TOKENIZER = ("*token*.json", "vocab.json", "vocab.txt", "merges.txt", "*.model", "*.tiktoken", "*.jinja")
DATA = ("json", "jsonl", "parquet", "csv", "tsv", "txt", "gz", "zst", "bz2", "xz", "arrow")
PATTERNS = {
    "models": ["config.json", "generation_config.json", *TOKENIZER, SINGLE, INDEX, SHARDS],
    "tokenizers": ["config.json", *TOKENIZER],
    "datasets": ["README.md", *(f"*.{suffix}" for suffix in DATA)],
}
"""By kind, the files of a repository that are read: never pickles, never code."""


class Bar(tqdm):
    """The progress on a terminal, also where commands switch off the bars of Hugging Face's libraries."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"disable": None})


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
            repository = replace(requirement, kind="datasets", id=source)
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
        import httpx2

        if self.unreachable:
            return False
        pin = read_pin(requirement, self.store)  # its folder was lost: the same commit once more
        revision = requirement.revision or "main"
        try:
            snapshot = replace(look_up(repository, (pin and pin.commit) or revision), revision=revision)
            folder = self.root / snapshot.folder
            if not folder.is_dir() and not self.store.exists(folder):  # else an earlier start could not send it
                self._download_files(repository, snapshot)
        except (httpx2.HTTPError, OSError, RuntimeError) as error:  # hf_xet's failures are RuntimeErrors
            self.unreachable = explain_silence(repository, error)
            return False
        self._keep(requirement, snapshot)
        return True

    def _download_files(self, repository: HubRequirement, snapshot: HubSnapshot) -> None:
        """Fetch a snapshot as a whole. Raises InputError for damaged files, which the next start fetches again."""
        from huggingface_hub import HfApi, snapshot_download

        folder = self.root / snapshot.folder
        staging = folder.with_name(f".{folder.name}.part")  # an interrupted download goes on there
        present = sum(path.stat().st_size for path in staging.rglob("*") if path.is_file())  # parts of files, too
        lacking = max(0, sum(file["size"] or 0 for file in snapshot.files.values()) - present)
        if lacking > (free := self.store.free()):
            needed = f"{repository.label} takes {format_size(lacking)}, {format_size(free)} are free"
            raise InputError(f"--storage: {needed} at '{self.store.root}'")
        at = f"{repository.id} at {str(snapshot.commit)[:12]}"
        self.print_line(f"fetching {at}: {len(snapshot.files)} files, {format_size(lacking)}")
        place: dict[str, Any] = {"repo_type": repository.repo_type, "revision": snapshot.commit, "local_dir": staging}
        names = [glob.escape(name) for name in snapshot.files]
        snapshot_download(repository.id, allow_patterns=names, tqdm_class=Bar, **place)
        verified = HfApi().verify_repo_checksums(repository.id, **place)
        damaged = sorted(snapshot.files.keys() & {found["path"] for found in verified.mismatches})
        for name in damaged:
            (staging / name).unlink()
        if damaged:
            raise InputError(
                f"{repository.field}: {', '.join(damaged)} of {at} came damaged; start again to fetch it again"
            )
        if missing := sorted(snapshot.files.keys() & set(verified.missing_paths)):  # snapshot_download only logs that
            raise OSError(f"it has not sent {', '.join(missing)}")
        shutil.rmtree(staging / ".cache", ignore_errors=True)  # huggingface_hub's own notes
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


def look_up(repository: HubRequirement, revision: str) -> HubSnapshot:
    """Return the commit that `revision` names now and the files of it that are read."""
    from huggingface_hub import HfApi

    query: dict[str, Any] = {"repo_type": repository.repo_type, "revision": revision, "files_metadata": True}
    info: Any = HfApi().repo_info(repository.id, **query)
    every = {file.rfilename: file for file in info.siblings or ()}
    files = {
        name: {"size": every[name].size, "sha256": large.sha256 if (large := every[name].lfs) else None}
        for name in choose_files(repository, every)
    }
    return replace(make_snapshot(repository, revision, info.sha, "hub", ()), files=files)


def find_damage(kind: str, folder: Path) -> str | None:
    """Return what is wrong in a folder of a model or tokenizer: a missing file, or weights that are cut short."""
    from safetensors import SafetensorError, safe_open

    file, names = folder / INDEX, ["config.json"]
    try:
        if kind == "models":
            names += {*json.loads(file.read_bytes())["weight_map"].values()} if file.is_file() else [SINGLE]
        for file in (folder / name for name in names):
            with safe_open(file, "numpy") if file.suffix == ".safetensors" else file.open():
                pass
    except OSError as error:
        return f"{file}: {error.strerror or error}"
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"{file}: it cannot be read ({error})"
    return None


def choose_files(repository: HubRequirement, names: Iterable[str]) -> list[str]:
    """Return the files that are read. Raises InputError where a model has no safetensors."""
    from huggingface_hub.utils import filter_repo_objects

    every, ignored = sorted(names), ["/*", "../*", "*/../*"] if repository.kind == "datasets" else ["*/*"]
    found = list(filter_repo_objects(every, allow_patterns=PATTERNS[repository.kind], ignore_patterns=ignored))
    if repository.kind == "models" and SINGLE in found:
        return list(filter_repo_objects(found, ignore_patterns=[INDEX, SHARDS]))
    if repository.kind == "models" and INDEX not in found:
        raise InputError(
            f"{repository.field}: {repository.id} has no {SINGLE} on the hub, and nothing else is loaded; it has "
            f"{', '.join(every) or 'nothing'}; save it as safetensors and give that folder: {repository.option}"
        )
    return found


def make_snapshot(
    repository: HubRequirement, revision: str, commit: str | None, source: str, files: Iterable[Path]
) -> HubSnapshot:
    folder = folder_name(repository.kind, repository.id, commit or revision)
    sizes = {file.name: {"size": file.stat().st_size} for file in files if file.is_file()}
    return HubSnapshot(repository.id, revision, commit, folder, source, provenance.now(), sizes)


def explain_silence(repository: HubRequirement, error: Exception) -> str:
    """Return why the hub does not answer. Raises InputError where it refuses, and the error where the disk is full."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403, 404):
        said = " ".join(str(error).split("\n\n", 1)[-1].split())
        licence = "accept its licence if it is gated, and set HF_TOKEN (or log in with 'hf auth login')"
        raise InputError(
            f"{repository.field}: {repository.label}: {said}; "
            + (repository.gated or f"check the name; {licence}; or {repository.option}")
        ) from error
    if isinstance(error, OSError) and error.errno is not None:
        raise error
    return f"the hub does not answer ({first_line(error.__cause__ or error)})"
