"""Folders as storages: what is taken for a result, files written whole, who may read them, and UNLEARN_STORAGE."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import platform.status as status
import platform.sweep.__main__ as sweep
from analysis import report
from tests.support.starts import RESULT_FIELDS, invoke
from trainables import export
from trainables.common.cli import STORAGE_VARIABLE
from trainables.storage import atomic_files
from trainables.storage.file_names import RESULT
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import format_storage_option, open_storage

COMMANDS: dict[str, tuple[Callable[..., int], list[str]]] = {
    "sweep": (sweep.main, ["quickstart", "--dry-run"]),
    "status": (status.main, ["tofu_tiny"]),
    "report": (report.main, ["tofu_tiny"]),
    "export": (export.main, ["0123", "--output", "model"]),
}


@pytest.mark.parametrize(
    "change",
    [
        *({"id": "another"}, {"config": None}, {"metrics": None}, {"status": "done"}, {"metrics": {"mu": "high"}}),
        *({"metrics": {"mu": "inf"}}, {"error": "no"}, {"seconds": {"total": "1"}}, {"config": {"method": 1}}),
        *({name: ...} for name in (*RESULT_FIELDS, "id")),
    ],
    ids=str,
)
def test_a_result_of_something_else_is_none(store: Storage, change: dict[str, Any]) -> None:
    result, path = {**RESULT_FIELDS, "id": "a1"}, store.trial("a1") / RESULT
    atomic_files.write_json(path, result)
    assert store.result("a1") == result
    atomic_files.write_json(path, {name: value for name, value in (result | change).items() if value is not ...})
    assert store.result("a1") is None
    path.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    assert store.result("a1") is None


def test_rows_of_a_trial_that_observes_since_it_was_resumed_keep_all_columns(tmp_path: Path) -> None:
    atomic_files.write_parquet_rows(tmp_path / "steps.parquet", [{"step": 1}, {"step": 2, "observed_cos": 0.5}])
    assert atomic_files.read_parquet_rows(tmp_path / "steps.parquet") == [
        {"step": 1, "observed_cos": None},
        {"step": 2, "observed_cos": 0.5},
    ]


def test_a_new_storage_is_for_its_user_alone_and_an_old_one_stays(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o755)
    for name, mode in (("new", 0o700), ("old", 0o755)):
        root = open_storage(f"{tmp_path}/old/../{name}").root
        assert (root, root.stat().st_mode & 0o777) == (tmp_path / name, mode)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_it_and_the_option_wins(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main, arguments = COMMANDS[name]
    for folder in ("set", "asked"):
        (tmp_path / folder / "sweeps").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path / "set"))
    for more, folder in (([], "set"), (["--storage", str(tmp_path / "asked")], "asked")):
        done = invoke(main, *arguments, *more)
        assert done.exit_code == (0 if name == "sweep" else 2)
        assert str(tmp_path / folder) in done.output


def test_printed_commands_name_another_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stores = Storage(tmp_path / "runs"), Storage(tmp_path / "others")
    for default, printed in (("", ("", " --storage others")), (str(tmp_path / "others"), (" --storage runs", ""))):
        monkeypatch.setenv(STORAGE_VARIABLE, default)
        assert tuple(map(format_storage_option, stores)) == printed
