"""UNLEARN_STORAGE: said once for a machine, it is where every command's results are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import platform.status as status
import platform.sweep.__main__ as sweep
from analysis import report
from platform.state.typed_commands import storage_option
from tests.support.starts import invoke
from trainables import export
from trainables.common.cli import STORAGE_VARIABLE
from trainables.storage.folder_storage import Storage

COMMANDS: dict[str, tuple[Callable[..., None], list[str]]] = {
    "sweep": (sweep.main, ["quickstart", "--dry-run"]),
    "status": (status.main, ["tofu_tiny"]),
    "report": (report.main, ["tofu_tiny"]),
    "export": (export.main, ["0123", "--output", "model"]),
}


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
        assert tuple(map(storage_option, stores)) == printed
