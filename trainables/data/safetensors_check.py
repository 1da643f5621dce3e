"""Whether safetensors files are whole, by what they say of themselves: nothing is loaded.

A file begins with the length of its header (8 bytes, little-endian) and the header, JSON: name -> dtype, shape and
`data_offsets` from the header's end. An index says which file holds which tensor, and the bytes of all tensors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
LONGEST_HEADER = 100_000_000
"""The library's own limit."""


class Damaged(Exception):
    """Why a file is not what it says."""


def header(file: Path) -> dict[str, Any]:
    """Tensor name -> its description. Raises Damaged where the file's size is not what the header asks for."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(LONGEST_HEADER, size - 8):
            raise Damaged(f"{size} bytes are too few for its header")
        try:
            found = json.loads(stream.read(length))
            tensors = {name: about for name, about in found.items() if name != "__metadata__"}
            end = max((about["data_offsets"][1] for about in tensors.values()), default=0)
        except (ValueError, AttributeError, TypeError, KeyError, IndexError, RecursionError) as error:
            raise Damaged("its header cannot be read") from error
    if size != 8 + length + end:
        raise Damaged(f"it has {size} bytes, its header asks for {8 + length + end}")
    return tensors


def fault(file: Path) -> str | None:
    """What is wrong with one file, None where it is whole."""
    try:
        header(file)
    except Damaged as error:
        return str(error)
    except OSError as error:
        return error.strerror or str(error)
    return None


def faults(folder: Path) -> dict[str, str]:
    """File name -> what is wrong with it, of the weights of a model folder; nothing where they are whole.

    The bytes that the index tells for all tensors are held against those of the headers: INDEX is at fault there.
    """
    if not (folder / INDEX).is_file():
        return {SINGLE: why} if (why := fault(folder / SINGLE)) else {}
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        placed = {str(tensor): str(file) for tensor, file in index["weight_map"].items()}
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        return {INDEX: f"it cannot be read: {error}"}
    found, total = {}, 0
    for name in sorted(set(placed.values())):
        if Path(name).name != name:
            return {INDEX: f"it names '{name}', which is no file beside it"}
        why = fault(folder / name)
        if why:
            found[name] = why
            continue
        tensors = header(folder / name)
        total += sum(about["data_offsets"][1] - about["data_offsets"][0] for about in tensors.values())
        missing = [tensor for tensor, file in placed.items() if file == name and tensor not in tensors]
        if missing:
            found[name] = f"it has no tensor '{missing[0]}', which {INDEX} places there"
    told = (index.get("metadata") or {}).get("total_size")
    if not found and told is not None and told != total:
        found[INDEX] = f"it tells {told} bytes of tensors, the files hold {total}"
    return found
