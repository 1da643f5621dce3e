"""Loads the rows of a data set, from a folder with a file a configuration or split or from the hub, and checks them."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainables.common import fingerprints, typed_paths
from trainables.common.errors import InputError
from trainables.data import hub_folders
from trainables.data.hub_folders import HubRequirement

Row = dict[str, Any]
SUFFIXES = (".json", ".jsonl", ".parquet")
CSV = ".csv"
OTHER_SUFFIXES = SUFFIXES[1:]
"""Endings that a file may have in the place of `.json`."""


def names_folder(data: str) -> bool:
    """Return whether `data` names a folder of a person's. Raises InputError if it looks like a path and is none."""
    if hub_folders.is_given_folder(data):
        return True
    if not typed_paths.is_folder(data) and not typed_paths.is_hub_id(data):
        raise InputError(
            f"benchmark.data: no folder {typed_paths.describe_path(data)} "
            "(give a folder, or a hub id such as locuslab/TOFU)"
        )
    return False


@contextmanager
def errors_about(field: str) -> Iterator[None]:
    """Let messages about rows name the setting that they came from."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("benchmark.data", field, 1)) from error


def hub_requirements(data: str, configs: Sequence[str], revision: str | None) -> tuple[HubRequirement, ...]:
    """Return what a start has to fetch: the data set unless it is a folder."""
    if typed_paths.is_folder(data):
        return ()
    return (HubRequirement("datasets", data, revision, files=file_names(configs), suffixes=OTHER_SUFFIXES),)


def file_names(configs: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the files that a folder has to hold."""
    return tuple(f"{config}.json" for config in dict.fromkeys(configs))


def require_file(folder: Path, config: str) -> Path:
    """Return the file of a configuration, such as `knowmem/forget_qa`. Raises InputError with what is there."""
    file = find_file(folder, config)
    if file is not None:
        return file
    files = [file for pattern in ("*", "*/*") for file in folder.glob(pattern) if file.suffix in SUFFIXES]
    there = sorted({str(file.relative_to(folder).with_suffix("")) for file in files})
    has = ", ".join(there) or "no data file"
    raise InputError(f"benchmark.data: {folder} has no {config}.json, .jsonl or .parquet; it has {has}")


def find_file(folder: Path, config: str) -> Path | None:
    """Return the file of a configuration, None if there is none."""
    files = [folder / f"{config}{suffix}" for suffix in SUFFIXES]
    return next((file for file in files if typed_paths.is_file(file)), None)


def load_rows(
    data: str, config: str, columns: Sequence[str], revision: str | None = None, *, blank: bool = False
) -> list[Row]:
    """Return all rows of a configuration (`NAME/SPLIT` where it has several splits), in order.

    Raises InputError on a missing file, column or empty file, and on an empty value unless `blank` allows it.
    """
    absent = (None,) if blank else (None, "", [])
    if names_folder(data):
        rows = load_file(require_file(typed_paths.expand(data), config), "benchmark.data")
    else:
        rows = _from_hub(data, config, revision)
    if not rows:
        raise InputError(f"benchmark.data: {config} of {data} has no rows")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise InputError(f"benchmark.data: row {number} of {config} in {data} is no JSON object")
        missing = [column for column in columns if row.get(column) in absent]
        if missing:
            raise InputError(
                f"benchmark.data: row {number} of {config} in {data} has no '{missing[0]}'; "
                f"its columns: {list_columns(row)}"
            )
    return rows


def list_columns(row: Row) -> str:
    """Return a row's columns for a message, without what may be a text: a CSV file may lack the line of names."""
    names = [name for name in row if re.fullmatch(r"[\w.-]{1,40}", name)]
    others = [f"{len(row) - len(names)} that are no names"] if len(names) < len(row) else []
    return ", ".join([*names, *others])


def fingerprint_rows(data: str, configs: Sequence[str], revision: str | None = None) -> str:
    """Name what the configurations hold: by a content hash of a folder, by id and revision of the hub."""
    if names_folder(data):
        folder = typed_paths.expand(data)
        return "files:" + fingerprints.hash_files([require_file(folder, config) for config in configs])
    return f"hub:{hub_folders.hub_id_of(data)}@{revision or 'main'}"


def load_file(file: Path, field: str) -> list[Row]:
    """Return all rows of a JSON, JSON Lines, Parquet or CSV file, in order. Raises InputError, led by `field`."""
    if file.suffix == CSV:
        return list(_read_csv(file, field))
    if file.suffix == ".parquet":
        import pyarrow.parquet

        try:
            return pyarrow.parquet.read_table(file).to_pylist()
        except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: text that is not UTF-8
            raise InputError(f"{field}: {file} is no Parquet file: {error}") from error
    try:
        text = file.read_text(encoding="utf-8-sig")
        if text.lstrip().startswith("["):
            return json.loads(text)
        return list(_parse_lines(text, f"{field}: {file}"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{field}: {file} is not JSON lines: {error}") from error
    except OSError as error:
        raise InputError(f"{field}: cannot read {file}: {error.strerror}") from error


def _read_csv(file: Path, field: str) -> Iterator[Row]:
    """Yield the rows under the names of the first line. Raises InputError on a row of another length."""
    csv.field_size_limit(sys.maxsize)  # a text may be longer than its 128 kB
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            for row in reader:
                if None in row or None in row.values():
                    what = f"line {reader.line_num} has another number of columns than the first line"
                    raise InputError(f"{field}: {file}: {what}; put a text with a comma in double quotes")
                yield row
    except (csv.Error, ValueError) as error:
        raise InputError(f"{field}: {file} is no CSV in UTF-8: {error}") from error
    except OSError as error:
        raise InputError(f"{field}: cannot read {file}: {error.strerror}") from error


def _parse_lines(text: str, place: str) -> Iterator[Row]:
    """Yield the values of JSON Lines. Raises InputError with the number of the line that is none."""
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                yield json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", None) or error
            column = f", column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
            raise InputError(f"{place} is not JSON lines: line {number}{column}: {reason}") from error


def _from_hub(data: str, config: str, revision: str | None) -> list[Row]:
    import datasets

    name, _, split = config.partition("/")
    file = find_file(Path(data), config) if hub_folders.parse_folder(data) else None
    if file is not None:
        return load_file(file, "benchmark.data")
    try:
        return list(datasets.load_dataset(data, name, split=split or "train", revision=revision))  # type: ignore[arg-type]
    except Exception as error:
        raise InputError(
            f"benchmark.data: cannot load '{config}' of hub data set '{data}': {error}. "
            "Without a network give a folder: --set benchmark.data=DIR, or --data DIR"
        ) from error
