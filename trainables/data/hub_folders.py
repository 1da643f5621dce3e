"""What a sweep takes from the hub, and at which commit: huggingface_hub keeps the files in its own cache (HF_HOME).

One storage never mixes two commits: STORAGE/shared/hub/models--ORG--NAME@main.json says which `main` was at first.
"""

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainables.common import deadlines, typed_paths
from trainables.storage.folder_storage import Storage

KIND_WORDS = {"models": "model", "tokenizers": "tokenizer", "datasets": "data set"}
CACHE_FOLDER_PATTERN = re.compile(r".*/(?:model|dataset)s--([^/]+)/snapshots/([^/]+)")
WEIGHT_FILE_PATTERNS = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
TOKENIZER_FILE_PATTERNS = ("*token*.json", "vocab.json", "vocab.txt", "merges.txt", "*.model", "*.tiktoken", "*.jinja")
DATA_FILE_SUFFIXES = ("json", "jsonl", "parquet", "csv", "tsv", "txt", "gz", "zst", "bz2", "xz", "arrow")
DOWNLOAD_PATTERNS_BY_KIND = {
    "models": ["config.json", "generation_config.json", *TOKENIZER_FILE_PATTERNS, *WEIGHT_FILE_PATTERNS],
    "tokenizers": ["config.json", *TOKENIZER_FILE_PATTERNS],
    "datasets": ["README.md", *(f"*.{suffix}" for suffix in DATA_FILE_SUFFIXES)],
}
"""By kind, the files of a repository that are read: never pickles, never code."""


@dataclass(frozen=True)
class HubRequirement:
    """A model, a tokenizer or a data set on the hub.

    `setting`: what a user sets to give an own folder instead of the hub's, such as `target=DIR`. `folder`: its own
    folder below DIR, where one DIR is for several requirements. `gated`: what to accept, where that is known.
    """

    kind: Literal["models", "tokenizers", "datasets"]
    id: str
    revision: str | None = None
    setting: str = "benchmark.data=DIR"
    gated: str = ""
    folder: str = ""

    @property
    def key(self) -> str:
        """Its name in a storage: `models--ORG--NAME@main`."""
        revision = re.sub(r"[^A-Za-z0-9._-]", "_", self.revision or "main")
        return f"{self.kind}--{self.id.replace('/', '--')}@{revision}"

    @property
    def repo_type(self) -> str:
        return "dataset" if self.kind == "datasets" else "model"

    @property
    def label(self) -> str:
        return f"{KIND_WORDS[self.kind]} {self.id}"

    @property
    def field(self) -> str:
        return self.setting.split("=", 1)[0]

    @property
    def folder_option(self) -> str:
        """What to type for a folder in its place: `--set models=DIR with it in DIR/retain95`."""
        return f"--set {self.setting}" + (f" with it in DIR/{self.folder}" if self.folder else "")


def parse_cache_folder(place: str) -> tuple[str, str] | None:
    """Return hub id and commit of a folder in huggingface_hub's cache, None for any other place."""
    found = CACHE_FOLDER_PATTERN.fullmatch(place)
    return (found[1].replace("--", "/", 1), found[2]) if found else None


def find_hub_id_of_folder(place: str) -> str:
    """Return the hub id whose files a folder of the cache holds, and any other place as it is."""
    found = parse_cache_folder(place)
    return found[0] if found else place


def is_user_named_folder(place: str | Path) -> bool:
    """Return whether a person named this folder: one of the cache stands for its hub id."""
    return typed_paths.is_folder(place) and parse_cache_folder(str(place)) is None


def locate_commit_pin(requirement: HubRequirement, store: Storage) -> Path:
    """Return the file that names the commit; it is written when all files are there."""
    return store.root / "shared" / "hub" / f"{requirement.key}.json"


def read_pinned_commit(requirement: HubRequirement, store: Storage) -> str | None:
    """Return the commit that the storage keeps to, None where it has fetched nothing."""
    found = store.read_json(locate_commit_pin(requirement, store))
    return found["commit"] if found else None


@functools.cache
def check_hub_responds() -> None:
    """Raise InputError if the hub takes a connection and gives no answer: its client would wait without a word."""
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE:
        advice = "try again, or set HF_HUB_OFFLINE=1 to go by what this machine has fetched"
        deadlines.check_server_responds(constants.ENDPOINT, "the hub", advice)


@functools.cache
def can_ask_hub() -> bool:
    """Return False where no way leads to the hub, which its client tries long; offline it goes by its cache."""
    import httpx2
    from huggingface_hub import constants, get_session

    check_hub_responds()
    try:
        if not constants.HF_HUB_OFFLINE:
            get_session().head(constants.ENDPOINT, timeout=deadlines.ANSWER_TIMEOUT)
    except httpx2.HTTPError as error:
        return not isinstance(error, httpx2.ConnectError | httpx2.TimeoutException)
    return True


def download_commit(requirement: HubRequirement, commit: str, *, only_cached: bool = False) -> Path:
    """Return the folder of a commit, fetched unless this machine has it. Raises what huggingface_hub raises."""
    from huggingface_hub import snapshot_download

    where: dict[str, Any] = {"repo_type": requirement.repo_type, "revision": commit}
    where |= {"repo_id": requirement.id, "allow_patterns": DOWNLOAD_PATTERNS_BY_KIND[requirement.kind]}
    try:
        return Path(snapshot_download(local_files_only=True, **where))
    except OSError:  # not all of it is here
        if only_cached:
            raise
        return Path(deadlines.call_within(float("inf"), requirement.label, lambda: snapshot_download(**where)))


def find_downloaded_folder(requirement: HubRequirement, store: Storage) -> Path | None:
    """Return the folder on this machine at the storage's commit, None without it; nothing is asked of the hub."""
    pin = read_pinned_commit(requirement, store)
    try:
        return None if pin is None else download_commit(requirement, pin, only_cached=True)
    except OSError:
        return None
