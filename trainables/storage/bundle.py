"""A sweep in one zip file: a storage with its numbers and its report, and the commands that run it again.

It holds no weights, no texts of rows or answers, and no secrets: strings of tables are emptied, texts are redacted.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from trainables.common.code_hash import ROOT, hash_code
from trainables.common.errors import InputError
from trainables.common.provenance import stamp
from trainables.common.redaction import redact
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CAME_BACK, CONFIG, RESULT, ROWS, STEPS
from trainables.storage.sweep_file import SweepFile

ABOUT, LOCK_FILE = "bundle.json", "constraints.txt"
LARGEST = 2**20
"""Bytes of bundle.json at most: of a file that others made, no more is read."""
README = """# {label}

{title}: {trials} trials, {commit}. It holds no weights, and no texts of rows or answers.

- The report: `reports/{label}/index.html`.
- The report again: `python -m zipfile -e {file} DIR`, then `python -m analysis.report {label} --storage DIR`.
- The sweep again: `python -m platform.sweep --from {file} --dry-run`, with `--set` for folders and files that lie
  elsewhere. If models, rows and settings are the same, it is called {label} there, too. It was:

{commands}

constraints.txt has the versions of all packages, bundle.json those that numbers depend on and a hash of the code.
"""


def write_bundle(sweep: SweepFile, store: Storage, report: Path, file: Path) -> None:
    """Write a sweep's results and its report folder as a zip file, which takes its name when it is whole."""
    with tempfile.TemporaryDirectory(dir=file.absolute().parent, prefix=f".{file.name}.") as place:
        copy = Storage(Path(place) / "storage")
        names = {name for key in sweep.trials for name in _copy_trial(key, store, copy)}
        for reference in sweep.references:
            key = reference.evaluation
            _copy_result(store.read_evaluation(key), store.evaluation(key), store, copy.evaluation(key))
        _write_json(copy.sweep(sweep.name, sweep.hash), sweep.model_dump(mode="json"))
        shutil.copytree(report, copy.root / "reports" / sweep.label, copy_function=_copy_redacted)
        shutil.copyfile(ROOT / LOCK_FILE, copy.root / LOCK_FILE)
        about = {"sweep": sweep.label, "commands": sweep.commands, "names": sorted(names), **stamp(*names)}
        _write_json(copy.root / ABOUT, about)
        commands = "".join(f"    {command}\n" for command in sweep.commands)
        values = {"commit": _describe_commit(about), "file": file.name, "trials": len(sweep.trials)}
        text = README.format(label=sweep.label, title=sweep.title, commands=commands, **values)
        atomic_files.write_text(copy.root / "README.md", text)
        archive = shutil.make_archive(str(Path(place) / "bundle"), "zip", copy.root)
        os.replace(archive, file)


def read_commands(file: Path) -> tuple[str, list[str]]:
    """Return the name of a bundle's sweep and the commands that ran it. Nothing is unpacked.

    Raises InputError if the file is no bundle, is damaged, holds a path that leads out of its folder, or was made with
    other code than this.
    """
    foreign = f"--from: '{file}' is no bundle; `python -m analysis.report NAME --bundle FILE.zip` writes one"
    try:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if "\\" in name or name.startswith("/") or ".." in PurePosixPath(name).parts:
                    raise InputError(f"--from: '{file}' is no bundle of ours: '{name}' leads out of its folder")
            if archive.getinfo(ABOUT).file_size > LARGEST:
                raise InputError(foreign)
            damaged, about = archive.testzip(), atomic_files.parse_object(archive.read(ABOUT))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"--from: there is no file '{file}'") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
        damage = "" if isinstance(error, KeyError) else f" or is damaged ({error})"
        raise InputError(foreign.replace(" is no bundle", f" is no bundle{damage}")) from error
    if damaged or about is None:
        raise InputError(f"--from: {damaged or ABOUT} in '{file}' is damaged; fetch the file again")
    if not isinstance(about.get("names"), list) or not about.get("commands"):
        raise InputError(foreign)
    if about.get("code") != hash_code(*map(str, about["names"])):
        raise InputError(
            f"--from: '{file}' was made with other code, {_describe_commit(about)}; its trials would be others here: "
            "check out that commit. Its report can be read and made again with this one: README.md in it"
        )
    return str(about["sweep"]), list(map(str, about["commands"]))


def _describe_commit(about: Mapping[str, Any]) -> str:
    changed = " with changed files" if about.get("dirty") else ""
    return f"commit {about['commit']}{changed}" if about.get("commit") else f"code {about.get('code')}"


def _copy_trial(key: str, store: Storage, copy: Storage) -> tuple[str, ...]:
    """Copy what a report reads of a trial; return the names of its method and rectifier."""
    folder, place = store.trial(key), copy.trial(key)
    if config := store.read_json(folder / CONFIG):
        _write_json(place / CONFIG, config)
    _copy_result(store.result(key), folder, store, place)
    if content := store.read_newest(store.stress(key) / CAME_BACK):
        _write_json(copy.stress(key) / CAME_BACK, atomic_files.parse_object(content) or {})
    return (config["method"], config["rectifier"]["name"]) if config else ()


def _copy_result(result: dict[str, Any] | None, folder: Path, store: Storage, place: Path) -> None:
    """Copy result.json, if there is one, and the tables beside it without their texts."""
    if result is None:
        return
    for name in (STEPS, ROWS):
        store.fetch(folder / name)
        if (folder / name).is_file():
            _copy_table(folder / name, place / name)
    _write_json(place / RESULT, result)


def _copy_table(path: Path, target: Path) -> None:
    """Copy a table that can be read, its strings empty but the names of tasks."""
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path).replace_schema_metadata(None)
    except (OSError, ValueError, pyarrow.ArrowException):
        return
    for place, field in enumerate(table.schema):
        kind = field.type.value_type if pyarrow.types.is_list(field.type) else field.type
        if field.name != "task" and not (pyarrow.types.is_primitive(kind) or pyarrow.types.is_null(kind)):
            table = table.set_column(place, field.name, pyarrow.repeat("", len(table)))
    target.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table, target, compression="zstd")


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object without secrets."""
    atomic_files.write_json(path, _redact_strings(dict(value)), durable=False)


def _redact_strings(node: Any) -> Any:
    if isinstance(node, str):
        return redact(node)
    if isinstance(node, dict):
        return {key: _redact_strings(item) for key, item in node.items()}
    return [_redact_strings(item) for item in node] if isinstance(node, list | tuple) else node


def _copy_redacted(source: str, target: str) -> None:
    """Copy a file of a report; pictures are no text."""
    try:
        Path(target).write_text(redact(Path(source).read_bytes().decode("utf-8")), encoding="utf-8", newline="")
    except UnicodeDecodeError:
        shutil.copyfile(source, target)
