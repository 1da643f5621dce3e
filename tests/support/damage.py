"""Random damage to a storage: bytes and shapes of its files, lost and exchanged files."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 5.0, 1e308, -1e308, float("nan"), float("inf"), 2**70, "", "a word", "\x1b[2J", "\udc80"),
    *("=1+1", "../../x", "a" * 5000, [], {}, [1, 2], {"a": None}, [[["deep"]]]),
)
"""What stands in the place of a value of a JSON file."""


UNCHECKED = ", without its checksum"
"""Said of a file whose numbers nobody can vouch for any more."""


def copy_storage(source: Path, target: Path) -> Path:
    """Copy a storage by hard links: what damages a file writes another one in its place."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target, copy_function=os.link))


def damage_storage(root: Path, dice: random.Random) -> str:
    """Damage one file of a storage; return what was done."""
    groups = {
        "results": [*root.glob("trials/*/result.json")],
        "configurations": [*root.glob("trials/*/config.json")],
        "rows": [*root.glob("trials/*/*.parquet")],
        "sweeps": [*root.glob("sweeps/*.json")],
        "shared": [path for path in root.glob("shared/**/*") if path.is_file()],
        "other": [root / "mlflow.db", *(path for path in root.glob("trials/*/weights/*") if path.is_file())],
    }
    file = dice.choice(groups[dice.choice([name for name in ("results", "results", *groups) if groups[name]])])
    content = file.read_bytes()
    ways = [_flip, _cut, _empty, _remove, _fill, _replace_by_folder]
    if file.suffix == ".json":
        ways += [_change_shape] * 6 + [_nest, _exchange]
    way = dice.choice(ways)
    file.unlink()
    told = way(file, content, dice)
    return f"{file.relative_to(root)}: {way.__name__.strip('_')} {told}"


def _flip(file: Path, content: bytes, dice: random.Random) -> str:
    place = dice.randrange(max(1, len(content)))
    file.write_bytes(content[:place] + bytes([dice.randrange(256)]) + content[place + 1 :])
    return f"byte {place}"


def _cut(file: Path, content: bytes, dice: random.Random) -> str:
    place = dice.randrange(max(1, len(content)))
    file.write_bytes(content[:place])
    return f"at {place} of {len(content)}"


def _empty(file: Path, content: bytes, dice: random.Random) -> str:
    file.write_bytes(b"")
    return ""


def _remove(file: Path, content: bytes, dice: random.Random) -> str:
    return ""


def _fill(file: Path, content: bytes, dice: random.Random) -> str:
    file.write_bytes(dice.randbytes(min(len(content), 5000)))
    return "with random bytes"


def _replace_by_folder(file: Path, content: bytes, dice: random.Random) -> str:
    file.mkdir()
    return ""


def _nest(file: Path, content: bytes, dice: random.Random) -> str:
    depth = dice.choice([500, 2000, 100_000])
    file.write_bytes(b"[" * depth + b"]" * depth if dice.random() < 0.5 else b'{"a":' * depth + b"1" + b"}" * depth)
    return f"{depth} deep"


def _exchange(file: Path, content: bytes, dice: random.Random) -> str:
    others = [path for path in file.parent.parent.rglob(file.name) if path != file] or [file.parent]
    other = dice.choice(others)
    if other.is_file():
        file.write_bytes(other.read_bytes())
    return f"by {other.parent.name}"


def _change_shape(file: Path, content: bytes, dice: random.Random) -> str:
    document = json.loads(content)
    places = list(_places(document))
    if isinstance(document, dict) and dice.random() < 0.5:  # as a file of an earlier version
        document.pop("checksum", None)
    unchecked = UNCHECKED if "checksum" not in document else ""
    node, key = dice.choice(places) if places else ([document], 0)
    if dice.random() < 0.25 and isinstance(node, dict):
        del node[key]
        told = f"without {key}"
    else:
        node[key] = dice.choice(VALUES)
        told = f"{key} = {str(node[key])[:40]!r}"
    file.write_text(json.dumps(document), encoding="utf-8", errors="surrogatepass")
    return told + unchecked


def _places(node: Any) -> Any:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield node, key
        yield from _places(value)
