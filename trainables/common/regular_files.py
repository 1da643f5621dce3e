"""Opens files that others made: regular ones alone, as bytes, text in UTF-8 or Parquet of a size that memory has."""

import os
import stat
from collections.abc import Collection
from io import BufferedReader
from pathlib import Path
from typing import Any

from trainables.common.errors import InputError

MAX_FILE_BYTES, MAX_ROWS_OR_VALUES, PARQUET_BATCH_ROWS = 2**32, 10**6, 1024
"""Of a text or a table in memory; of a table, and of it at once."""


def open_regular_file(path: Path) -> BufferedReader:
    """Open a file. Raises InputError for a pipe, which would wait, a device, which would not end, and a dead link."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        if path.is_symlink():
            raise InputError(f"'{path}' is a link to nothing; bring the file back, or remove the link") from error
        raise
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(f"'{path}' is no file but a pipe, a socket or a device")
    return path.open("rb")


def read_bytes(path: Path) -> bytes:
    """Return what a file holds. Raises InputError where `open_regular_file` does, and for over MAX_FILE_BYTES."""
    with open_regular_file(path) as opened:
        if os.fstat(opened.fileno()).st_size > MAX_FILE_BYTES:
            raise InputError(f"'{path}' has more than {MAX_FILE_BYTES} bytes; give a smaller file")
        return opened.read()


def read_text(path: Path) -> str:
    """Return a text in UTF-8, without a byte order mark. Raises UnicodeDecodeError, and InputError as `read_bytes`."""
    return read_bytes(path).decode("utf-8-sig")


def parse_yaml(text: str, loader: Any) -> Any:
    """Return YAML. Raises YAMLError where aliases unfold a small text to more than MAX_ROWS_OR_VALUES values."""
    import yaml

    values = [yaml.load(text, loader)]
    for value in values:
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if len(values) > MAX_ROWS_OR_VALUES:
            raise yaml.YAMLError(f"its aliases unfold to over {MAX_ROWS_OR_VALUES} values")
    return values[0]


def read_parquet(path: Path, columns: Collection[str] = ()) -> Any:
    """Return these columns of a table, or all. Raises InputError for a damaged file, or one too large for memory."""
    import pyarrow.parquet

    try:
        with open_regular_file(path) as opened, pyarrow.parquet.ParquetFile(opened) as file:
            fields = [field for field in file.schema_arrow if not columns or field.name in columns]
            plain = [f.with_type(f.type.value_type) if pyarrow.types.is_dictionary(f.type) else f for f in fields]
            size, schema, batches = 0, pyarrow.schema(plain), []
            for batch in file.iter_batches(PARQUET_BATCH_ROWS, columns=schema.names):
                batches.append(batch.cast(schema))
                size += batches[-1].nbytes
                if size > MAX_FILE_BYTES or file.metadata.num_rows > MAX_ROWS_OR_VALUES:
                    most = f"{MAX_ROWS_OR_VALUES} rows or {MAX_FILE_BYTES} bytes"
                    raise InputError(f"'{path}' unfolds to over {most}; give fewer rows")
            return pyarrow.Table.from_batches(batches, schema)
    except pyarrow.ArrowException as error:
        raise InputError(f"'{path}' cannot be read as parquet: {error}") from error
