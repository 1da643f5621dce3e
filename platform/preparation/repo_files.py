"""What a repository of the hub holds at one commit, which of its files are read here, and whether a copy is whole."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trainables.common.errors import InputError
from trainables.data import safetensors_check
from trainables.data.hub import HubRequirement, folder_name

DATA = (".json", ".jsonl", ".parquet", ".csv", ".tsv", ".txt", ".gz", ".zst", ".bz2", ".xz", ".arrow")
CARD = "README.md"
"""Says which files are which configuration and split of a data set."""
BLOCK = 2**20
CONFIGURATION = ("config.json", "generation_config.json")
TOKENIZER = ("*token*.json", "vocab.json", "vocab.txt", "merges.txt", "*.model", "*.tiktoken", "*.jinja")
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
FILES = {"models": CONFIGURATION + TOKENIZER + WEIGHTS, "tokenizers": CONFIGURATION[:1] + TOKENIZER}
"""By kind, the files at the top of a repository that are read: never pickles, never code."""


@dataclass(frozen=True)
class File:
    """A file of a repository. `size` in bytes; `sha256` of large files, `blob` (git's SHA-1) of the others."""

    name: str
    size: int | None = None
    sha256: str | None = None
    blob: str | None = None

    def fault(self, path: Path) -> str | None:
        """What is wrong with a copy, None where it is the hub's file as far as that can be told."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"it has {size} of {self.size} bytes"
        if self.sha256 is not None and _hash(path, hashlib.sha256()) != self.sha256:
            return "its SHA-256 is not the hub's"
        if self.sha256 is None and self.blob is not None:
            git = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
            if _hash(path, git) != self.blob:
                return "its hash is not the hub's"
        return safetensors_check.fault(path) if path.suffix == ".safetensors" else None


@dataclass(frozen=True)
class Listing:
    """The files of a repository at a commit. `config`: of a data set, the only one whose files are read; None: all."""

    id: str
    kind: str
    commit: str
    files: tuple[File, ...]
    config: str | None = None

    @property
    def bytes(self) -> int:
        return sum(file.size or 0 for file in self.files)

    @property
    def type(self) -> str:
        """The hub's word for the kind."""
        return "dataset" if self.kind == "datasets" else "model"

    @property
    def folder(self) -> str:
        """What it is called in a storage."""
        part = "" if self.config is None else "+" + re.sub(r"[^A-Za-z0-9._-]", "_", self.config)
        return folder_name(self.kind, self.id, self.commit) + part

    def of(self, names: Iterable[str]) -> Listing:
        """The same with some of the files."""
        chosen = set(names)
        return replace(self, files=tuple(file for file in self.files if file.name in chosen))


def of(info: Any, kind: str, config: str | None) -> Listing:
    """What `HfApi.repo_info(files_metadata=True)` told; names that lead out of a folder are left out."""
    files = tuple(
        File(found.rfilename, found.size, found.lfs.sha256 if found.lfs else None, found.blob_id)
        for found in info.siblings or ()
        if not found.rfilename.startswith("/") and ".." not in found.rfilename.split("/")
    )
    return Listing(info.id, kind, info.sha, files, config)


def read_of_model(thing: HubRequirement, listing: Listing) -> Listing:
    """The files of a model or tokenizer that are read. Raises InputError where there are no safetensors."""
    patterns = FILES[thing.kind]
    names = [file.name for file in listing.files if any(fnmatchcase(file.name, pattern) for pattern in patterns)]
    names = [name for name in names if "/" not in name]
    if thing.kind == "models" and safetensors_check.SINGLE in names:
        names = [name for name in names if not (name.startswith("model-") or name == safetensors_check.INDEX)]
    elif thing.kind == "models" and safetensors_check.INDEX not in names:
        there = ", ".join(sorted(file.name for file in listing.files)) or "nothing"
        raise InputError(
            f"{thing.field}: {thing.id} has no {safetensors_check.SINGLE} on the hub, and nothing else is loaded; "
            f"it has {there}; "
            f"save it as safetensors and give that folder: {thing.option}"
        )
    return listing.of(names)


def read_of_data(listing: Listing, card: dict[str, Any]) -> Listing:
    """The files of a data set that are read: those of one configuration where the card says which those are."""
    known = {file.name: file for file in listing.files if file.name.endswith(DATA)}
    configs = {str(one.get("config_name")): one.get("data_files") for one in card.get("configs") or ()}
    patterns = patterns_of(configs.get(listing.config or ""))
    chosen = [name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if listing.config is None or not chosen:
        return replace(listing.of([*known, CARD]), config=None)
    return listing.of([*chosen, CARD])


def patterns_of(files: Any) -> list[str]:
    """The patterns in `data_files` of a card: a text, a list of texts, or a list of `{split, path}`."""
    if isinstance(files, str):
        return [files]
    if isinstance(files, dict):
        return patterns_of(files.get("path"))
    return [pattern for item in files or () for pattern in patterns_of(item)]


def reduced(card: dict[str, Any], config: str) -> dict[str, Any]:
    """A card that names one configuration: `datasets` looks for the files of every one that a card names."""
    kept = [one for one in card["configs"] if one.get("config_name") == config]
    infos = card.get("dataset_info") or []
    infos = [one for one in (infos if isinstance(infos, list) else [infos]) if one.get("config_name") == config]
    return {"configs": kept} | ({"dataset_info": infos} if infos else {})


def _hash(path: Path, digest: Any) -> str:
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()
