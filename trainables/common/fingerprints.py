"""Content hashes of data and model folders: what a result was made from, whatever the folder is called."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainables.common.regular_files import open_regular_file

MIN_CACHED_HASH_FILE_BYTES = 256 * 2**20
"""Bytes of a file whose hash is kept in the user's cache: to read it again takes seconds."""
EXTRA_TEMPLATES = "additional_chat_templates/*.jinja"  # one called default counts in the place of chat_template.jinja
MODEL_PATTERNS = ("*.json", "*.safetensors", "*.model", EXTRA_TEMPLATES, "*.jinja", "merges.txt")
"""Configurations, tokenizer and weights."""
TOKENIZER_PATTERNS = ("*token*.json", "vocab.json", "*.model", EXTRA_TEMPLATES, "*.jinja", "merges.txt")
ALL_FILES_PATTERNS = ("**/[!.]*",)
"""But those whose own name is hidden: a storage's mark of its copy, or what is being written."""
RECIPE_FILE = "recipe.json"
"""Our own note in a folder that we wrote: how it was made, and the hash of its `content`."""


def hash_json(value: Any) -> str:
    """Return SHA-256 of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def hash_files(files: Iterable[Path]) -> str:
    """Return sixteen hex digits over the names and contents of `files`."""
    total = hashlib.sha256()
    for file in sorted(files, key=lambda path: (path.name, path)):
        total.update(file.name.encode() + b"\0" + _hash_file(file))
    return total.hexdigest()[:16]


def hash_folder(folder: Path, patterns: Iterable[str] = ALL_FILES_PATTERNS) -> str:
    """Return the fingerprint of a folder's files, but for our own note, which keeps that of all as `content`."""
    found = {file for pattern in patterns for file in folder.glob(pattern) if not file.is_dir()}
    return hash_files(file for file in found if file.name != RECIPE_FILE)


def _hash_file(file: Path) -> bytes:
    """Return SHA-256 of a file's size and content, of a large file as it is remembered."""
    with open_regular_file(file) as stream:
        state = os.fstat(stream.fileno())
        known = (os.path.realpath(file), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
        kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "unlearn", hash_json(known)[:32])
        remembered = kept.read_bytes() if state.st_size > MIN_CACHED_HASH_FILE_BYTES and kept.is_file() else b""
        if len(remembered) == hashlib.sha256().digest_size:
            return remembered
        found = hashlib.file_digest(stream, lambda: hashlib.sha256(str(state.st_size).encode())).digest()
    if state.st_size > MIN_CACHED_HASH_FILE_BYTES:
        with contextlib.suppress(OSError):  # a home that cannot be written to
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(found)
    return found
