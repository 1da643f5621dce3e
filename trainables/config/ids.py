"""The part of a configuration that is hashed: chosen settings, and the content of what they name, not its place."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from trainables.config.settings import Value

PLANNING = ("checkpoint_every", "gpu_memory", "gpu_name", "share_gpus")
"""Resources that change no number, and so no id."""


def drop_planning(identified: dict[str, Any]) -> None:
    """Remove resources that change no number from what `hashed_part` returned; a part of a GPU counts as a whole."""
    resources = identified.get("resources", {})
    for name in PLANNING:
        resources.pop(name, None)
    if "gpus" in resources:
        resources["gpus"] = max(1.0, resources["gpus"])
    if not identified.get("resources", True):
        del identified["resources"]


def hashed_part(value: Value) -> dict[str, Any]:
    """Return the chosen settings, without paths if a fingerprint names the content; a default is never changed."""
    chosen: dict[str, Any] = value.model_dump(mode="json", exclude_defaults=True)
    return without_paths(chosen)


def without_paths(node: Any) -> Any:
    """Return a JSON value without the paths that have a fingerprint beside them."""
    if not isinstance(node, dict):
        return node
    kept = {key: without_paths(item) for key, item in node.items()}
    places = {"fingerprint": ("path", "data", "sources", "tokenizer"), "data_fingerprint": ("data",)}
    places["idk_fingerprint"] = ("idk",)
    for fingerprint, paths in places.items():
        for path in paths if kept.get(fingerprint) else ():
            kept.pop(path, None)
    return kept


def digest(value: Any) -> str:
    """Return SHA-256 of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
