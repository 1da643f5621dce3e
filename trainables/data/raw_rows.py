"""Reads and checks rows of a folder or the hub, and files of answers like "I do not know". `field`: opens messages."""

import csv
import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainables.common import fingerprints, typed_paths
from trainables.common.errors import InputError
from trainables.common.regular_files import read_parquet, read_text
from trainables.data import hub_folders
from trainables.data.hub_folders import HubRequirement

Row = dict[str, Any]
SUFFIXES = (".json", ".jsonl", ".parquet")
CSV_SUFFIX = ".csv"
DEFAULT_SETTING_NAME = "benchmark.data"
DEFAULT_IDK_ANSWERS_FILE = Path(__file__).with_name("idk.txt")
"""Answers like "I do not know", one a line, which some objectives prefer to a forget row's own."""


def check_if_local_folder(data: str, field: str = DEFAULT_SETTING_NAME) -> bool:
    """Return whether `data` names a folder of a person's. Raises InputError if it looks like a path and is none."""
    if hub_folders.is_user_named_folder(data):
        return True
    if not typed_paths.is_folder(data) and not typed_paths.is_hub_id(data):
        place = typed_paths.quote_path(data)
        raise InputError(f"{field}: no folder {place} (give a folder, or a hub id such as locuslab/TOFU)")
    return False


def hub_requirements(
    data: str, revision: str | None, source: str | None = None, gated: str = ""
) -> tuple[HubRequirement, ...]:
    """Return what a start has to fetch: the data set unless it is a folder. `source`: its name in benchmark.sources."""
    setting = f"benchmark.sources={source}=DIR" if source else "benchmark.data=DIR"
    return () if typed_paths.is_folder(data) else (HubRequirement("datasets", data, revision, setting, gated=gated),)


def require_data_file(folder: Path, config: str, field: str = DEFAULT_SETTING_NAME) -> Path:
    """Return the file of a configuration, such as `knowmem/forget_qa`. Raises InputError with what is there."""
    if (file := find_data_file(folder, config)) is not None:
        return file
    files = [file for pattern in ("*", "*/*") for file in folder.glob(pattern) if file.suffix in SUFFIXES]
    files = [file for file in files if file.name != fingerprints.RECIPE_FILE]
    has = ", ".join(sorted({str(file.relative_to(folder).with_suffix("")) for file in files})) or "no data file"
    raise InputError(f"{field}: {folder} has no {config}.json, .jsonl or .parquet; it has {has}")


def find_data_file(folder: Path, config: str) -> Path | None:
    files = (folder / f"{config}{suffix}" for suffix in SUFFIXES)
    return next(filter(typed_paths.is_file, files), None)


def load_rows(
    data: str,
    config: str,
    columns: Sequence[str],
    revision: str | None = None,
    *,
    blank: bool = False,
    field: str = DEFAULT_SETTING_NAME,
) -> list[Row]:
    """Return all rows of a configuration (`NAME/SPLIT` where it has several splits), in order.

    Raises InputError on a missing file, row or column, and on an empty value unless `blank` allows it.
    """
    absent = (None,) if blank else (None, "", [])
    if check_if_local_folder(data, field):
        rows = load_rows_from_file(require_data_file(typed_paths.expand_home(data), config, field), field)
    else:
        rows = _from_hub(data, config, revision, field)
    if not rows:
        raise InputError(f"{field}: {config} of {data} has no rows")
    for number, row in enumerate(rows, 1):
        where = f"{field}: row {number} of {config} in {data}"
        if not isinstance(row, dict):
            raise InputError(f"{where} is no JSON object")
        if missing := [column for column in columns if row.get(column) in absent]:
            raise InputError(f"{where} has no '{missing[0]}'; its columns: {describe_columns(row)}")
    return rows


def describe_columns(row: Row) -> str:
    """Return a row's columns for a message, without what may be a text: a CSV file may lack the line of names."""
    names = [name for name in row if re.fullmatch(r"[\w.-]{1,40}", name)]
    others = [f"{len(row) - len(names)} that are no names"] if len(names) < len(row) else []
    return ", ".join([*names, *others])


def fingerprint_data_source(
    data: str, configs: Sequence[str], revision: str | None = None, field: str = DEFAULT_SETTING_NAME
) -> str:
    """Name what the configurations hold: by a content hash of a folder, by id and revision of the hub."""
    if check_if_local_folder(data, field):
        folder = typed_paths.expand_home(data)
        return "files:" + fingerprints.hash_files([require_data_file(folder, config, field) for config in configs])
    return f"hub:{hub_folders.find_hub_id_of_folder(data)}@{revision or 'main'}"


def load_rows_from_file(file: Path, field: str) -> list[Row]:
    """Return all rows of a JSON, JSON Lines, Parquet or CSV file, in order. Raises InputError, led by `field`."""
    try:
        if file.suffix == ".parquet":
            return read_parquet(file).to_pylist()
        text = read_text(file)
        return _parse_csv(text) if file.suffix == CSV_SUFFIX else _parse_json(text)
    except InputError as error:
        raise InputError(f"{field}: {error}") from error
    except (OSError, ValueError, RuntimeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{field}: {file} cannot be read as {file.suffix.removeprefix('.')}: {reason}") from error


def _parse_csv(text: str) -> list[Row]:
    """Return the rows under the names of the first line. Raises ValueError on a row of another length."""
    csv.field_size_limit(sys.maxsize)  # a text may be longer than its 128 kB
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows = []
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(
                f"line {reader.line_num} has another number of columns than the first line; quote a text with a comma"
            )
        rows.append(row)
    return rows


def _parse_json(text: str) -> list[Row]:
    """Return the values of a list or of JSON Lines. Raises ValueError with the number of the line that is none."""
    if text.lstrip().startswith("["):
        return json.loads(text)
    rows = []
    for number, line in enumerate(re.split(r"\r\n?|\n", text), 1):
        try:
            if line.strip():
                rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} is not JSON: {getattr(error, 'msg', error)}") from error
    return rows


def _from_hub(data: str, config: str, revision: str | None, field: str) -> list[Row]:
    import datasets

    name, _, split = config.partition("/")
    file = find_data_file(Path(data), config) if hub_folders.parse_cache_folder(data) else None
    if file is not None:
        return load_rows_from_file(file, field)
    try:
        hub_folders.check_hub_responds()
        return list(datasets.load_dataset(data, name, split=split or "train", revision=revision))  # type: ignore[arg-type]
    except Exception as error:
        raise InputError(
            f"{field}: cannot load '{config}' of hub data set '{data}': {error}. "
            "Without a network give a folder: --set benchmark.data=DIR, or --data DIR"
        ) from error


def read_idk_answers(place: str | None) -> tuple[str, ...]:
    """Return the lines of a file (none: DEFAULT_IDK_ANSWERS_FILE), stripped, without empty ones and comments (#)."""
    path = DEFAULT_IDK_ANSWERS_FILE if place is None else typed_paths.expand_home(place)
    try:
        lines = [line.strip() for line in read_text(path).splitlines()]
    except (OSError, ValueError) as error:
        shown = typed_paths.quote_path(str(place))
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise InputError(f"objective.idk: cannot read {shown}: {reason}; give a text file, an answer a line") from error
    answers = tuple(line for line in lines if line and not line.startswith("#"))
    if not answers:
        raise InputError(f"objective.idk: {path} has no answer; write one a line")
    if objects := [line for line in answers if line.startswith("{")]:
        line = lines.index(objects[0]) + 1
        raise InputError(f"objective.idk: {path}: write each answer as plain text, not as JSON (line {line})")
    return answers


def fingerprint_idk_answers(place: str | None) -> str:
    """Name the answers, wherever their file lies. Raises InputError."""
    return f"lines:{fingerprints.hash_json(read_idk_answers(place))[:16]}"
