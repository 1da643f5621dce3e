"""A repository of the hub: which of its files are read, how they are fetched, and why the hub refuses."""

from __future__ import annotations

import glob
import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tqdm.auto import tqdm

from trainables.common import provenance
from trainables.common.errors import InputError
from trainables.data.hub_folders import HubRequirement, HubSnapshot, folder_name

SINGLE, INDEX, SHARDS = "model.safetensors", "model.safetensors.index.json", "model-*.safetensors"
TOKENIZER = ("*token*.json", "vocab.json", "vocab.txt", "merges.txt", "*.model", "*.tiktoken", "*.jinja")
DATA = ("json", "jsonl", "parquet", "csv", "tsv", "txt", "gz", "zst", "bz2", "xz", "arrow")
PATTERNS = {
    "models": ["config.json", "generation_config.json", *TOKENIZER, SINGLE, INDEX, SHARDS],
    "tokenizers": ["config.json", *TOKENIZER],
    "datasets": ["README.md", *(f"*.{suffix}" for suffix in DATA)],
}
"""By kind, the files of a repository that are read: never pickles, never code."""
V = TypeVar("V")


class HubUnreachable(Exception):
    """The hub does not answer, or must not be asked."""


PAUSES = (1.0, 4.0, 15.0)
"""Seconds before a question is asked again: huggingface_hub repeats downloads, but no question about a repository."""
BUSY = (408, 429, 500, 502, 503, 504)


class Bar(tqdm):
    """The progress on a terminal, also where commands switch off the bars of Hugging Face's libraries."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"disable": None})


def look_up(repository: HubRequirement, revision: str) -> HubSnapshot:
    """Return the commit that `revision` names now and the files of it that are read.

    Raises InputError and HubUnreachable.
    """
    from huggingface_hub import HfApi

    query: dict[str, Any] = {"repo_type": repository.repo_type, "revision": revision, "files_metadata": True}
    info: Any = _ask_hub(lambda: HfApi().repo_info(repository.id, **query), repository, PAUSES)
    every = {file.rfilename: file for file in info.siblings or ()}
    files = {
        name: {"size": every[name].size, "sha256": large.sha256 if (large := every[name].lfs) else None}
        for name in choose_files(repository, every)
    }
    return replace(make_snapshot(repository, revision, info.sha, "hub", ()), files=files)


def download(repository: HubRequirement, snapshot: HubSnapshot, folder: Path) -> list[str]:
    """Fetch what is not in the folder yet. Delete the files that arrived damaged, and return their names.

    Raises InputError and HubUnreachable: snapshot_download itself leaves out without a word what the hub does not list.
    """
    from huggingface_hub import HfApi, snapshot_download

    place: dict[str, Any] = {"repo_type": repository.repo_type, "revision": snapshot.commit, "local_dir": folder}
    names = [glob.escape(name) for name in snapshot.files]
    _ask_hub(lambda: snapshot_download(repository.id, allow_patterns=names, tqdm_class=Bar, **place), repository)
    verified: Any = _ask_hub(lambda: HfApi().verify_repo_checksums(repository.id, **place), repository, PAUSES)
    if missing := sorted(snapshot.files.keys() & set(verified.missing_paths)):
        raise HubUnreachable(f"the hub has not sent {', '.join(missing)}")
    damaged = sorted(snapshot.files.keys() & {found["path"] for found in verified.mismatches})
    for name in damaged:
        (folder / name).unlink()
    if not damaged:
        shutil.rmtree(folder / ".cache", ignore_errors=True)  # huggingface_hub's own notes
    return damaged


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


def _ask_hub(action: Callable[[], V], repository: HubRequirement, pauses: Sequence[float] = ()) -> V:
    """Return what the hub answers; if it is busy, ask again after `pauses`. Raises InputError or HubUnreachable."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return action()
    except (httpx2.HTTPError, OSError, RuntimeError) as error:  # hf_xet's failures are RuntimeErrors
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
        if pauses and (status in BUSY or isinstance(error, httpx2.TransportError)):
            time.sleep(pauses[0])
            return _ask_hub(action, repository, pauses[1:])
        if isinstance(error, HfHubHTTPError) and status in (401, 403, 404):
            raise InputError(f"{repository.field}: {_explain_refusal(repository, error)}") from error
        if isinstance(error, OSError) and error.errno is not None:
            raise
        cause = error.__cause__ or error
        first = str(cause).strip().partition("\n")[0] or type(cause).__name__
        raise HubUnreachable(f"the hub does not answer ({first})") from error


def _explain_refusal(repository: HubRequirement, error: Exception) -> str:
    """Return why the hub refuses a repository: to everybody, or to this user."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import GatedRepoError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        token = "the token that is set has no access yet" if get_token() else "no token is set"
        page = f"https://huggingface.co/{'datasets/' if repository.kind == 'datasets' else ''}{repository.id}"
        accept = repository.gated or (
            f"{repository.label} is gated: accept its licence at {page}, then set HF_TOKEN (or log in with "
            f"'hf auth login'); or {repository.option}"
        )
        return f"{accept} ({token})"
    if isinstance(error, RevisionNotFoundError):
        return f"{repository.id} has no revision '{repository.revision}' on the hub"
    return (
        f"the hub has no {repository.label}, or shows it to those with access alone (HF_TOKEN, 'hf auth login'); "
        f"check the name, or {repository.option}"
    )
