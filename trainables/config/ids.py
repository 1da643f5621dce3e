"""What a configuration is hashed from: the chosen settings and the content of what they name, not the places."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from trainables.config.settings import Value

PLANNING = ("checkpoint_every", "gpu_memory")
"""Resources that change no number, and so no id."""


def forget_planning(identified: dict[str, Any]) -> None:
    """Take out of what `identity` gave the resources that change no number, and the resources where none are left."""
    for name in PLANNING:
        identified.get("resources", {}).pop(name, None)
    if not identified.get("resources", True):
        del identified["resources"]


def identity(value: Value) -> dict[str, Any]:
    """What a value's hash is made of: the chosen settings, without paths where a fingerprint names the content.

    Defaults are left out, so that a setting added later leaves old results valid; a default is never changed.
    """
    chosen: dict[str, Any] = value.model_dump(mode="json", exclude_defaults=True)
    return without_paths(chosen)


def without_paths(node: Any) -> Any:
    """A value as JSON without where its parts lie, wherever a fingerprint beside the place names what lies there."""
    if not isinstance(node, dict):
        return node
    kept = {key: without_paths(item) for key, item in node.items()}
    places = {"fingerprint": ("path", "data", "sources", "tokenizer"), "data_fingerprint": ("data",)}
    for fingerprint, paths in places.items():
        for path in paths if kept.get(fingerprint) else ():
            kept.pop(path, None)
    return kept


def digest(value: Any) -> str:
    """SHA-256 of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
