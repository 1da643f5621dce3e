"""Content hashes of data and model folders: what a result was made from, whatever the folder is called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SAMPLED_ABOVE = 256 * 2**20
CHUNK = 2**20
SAMPLES = 64
RECIPE = "recipe.json"
"""Our own note in a model folder: how it was made."""


def hash_json(value: Any) -> str:
    """Return SHA-256 of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def hash_files(files: Iterable[Path]) -> str:
    """Return sixteen hex digits over the names and contents of `files`."""
    total = hashlib.sha256()
    for file in sorted(files, key=lambda path: path.name):
        total.update(file.name.encode() + b"\0" + _hash_file(file))
    return total.hexdigest()[:16]


def hash_model(folder: Path) -> str:
    """Return a model folder's fingerprint: of configurations, tokenizer and weights, not of our own note."""
    patterns = ("*.json", "*.safetensors", "*.model", "*.jinja", "merges.txt")
    found = {file for pattern in patterns for file in folder.glob(pattern)}
    return hash_files(file for file in found if file.name != RECIPE)


def hash_tokenizer(folder: Path) -> str:
    """Return a tokenizer's fingerprint, wherever its folder lies and whatever weights are beside it."""
    patterns = ("*token*.json", "vocab.json", "*.model", "*.jinja", "merges.txt")
    return hash_files({file for pattern in patterns for file in folder.glob(pattern)})


def _hash_file(file: Path) -> bytes:
    """Return SHA-256 of a file; of its size and 64 evenly spaced MiB if it is larger than 256 MiB."""
    size = file.stat().st_size
    content = hashlib.sha256(str(size).encode())
    with file.open("rb") as stream:
        if size <= SAMPLED_ABOVE:
            for block in iter(lambda: stream.read(CHUNK), b""):
                content.update(block)
        else:
            for k in range(SAMPLES):
                stream.seek(k * (size - CHUNK) // (SAMPLES - 1))
                content.update(stream.read(CHUNK))
    return content.digest()
