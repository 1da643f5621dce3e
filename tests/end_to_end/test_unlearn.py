"""`unlearn` from any folder: how `make setup` makes it, its list of commands, completion. A sweep by it:
test_sweep_end_to_end."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import platform.unlearn as unlearn

MODULES = {name: module.removesuffix(".__main__") for name, (module, _, _) in unlearn.COMMANDS.items()}


def test_set_up_links_it_and_it_imports_no_command(root: Path, tmp_path: Path) -> None:
    (tmp_path / "Makefile").symlink_to(root / "Makefile")
    (tmp_path / "platform").symlink_to(root / "platform")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("pyproject.toml", "constraints.txt", ".venv/.setup-stamp"):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "typer.py").write_text("raise ImportError('a file of this folder')")
    subprocess.run(["make", "-s", "setup"], cwd=tmp_path, check=True)
    command = [tmp_path / ".venv/bin/unlearn", "--version"]
    env = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(command, cwd=tmp_path / "runs", env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"unlearn 0.1.0 ({root})\n"
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"platform.unlearn", "typer"} <= loaded
    assert loaded.isdisjoint({*MODULES.values(), "pydantic", "torch", "ray"})


def test_help_has_an_example_of_each_command() -> None:
    done = CliRunner().invoke(unlearn.app, ["-h"], env={"COLUMNS": "200", "NO_COLOR": "1"}, prog_name="unlearn")
    assert done.exit_code == 0
    for name, (module, about, example) in unlearn.COMMANDS.items():
        assert f"{about}: unlearn {name} {example}" in done.stdout
        assert importlib.util.find_spec(module)


@pytest.mark.parametrize(
    ("typed", "known"), [("st", {"status", "stress"}), ("status --ver", {"--verify"}), ("report --sour", {"--source"})]
)
def test_completion_knows_commands_and_their_options(typed: str, known: set[str]) -> None:
    words = {"COMP_WORDS": f"unlearn {typed}", "COMP_CWORD": str(len(typed.split()))}
    done = CliRunner().invoke(unlearn.app, [], env=words | {"_UNLEARN_COMPLETE": "complete_bash"}, prog_name="unlearn")
    assert set(done.stdout.split()) == known


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # the module was imported by another test
@pytest.mark.parametrize(("word", "status", "printed"), [("-h", 0, "unlearn status [OPTIONS]"), ("tofu_tiny", 2, "")])
def test_a_command_runs_where_it_is_typed_as_its_module_does(
    word: str,
    status: int,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "runs" / "sweeps").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["-c", "status", word])
    with pytest.raises(SystemExit) as end:
        unlearn.main()
    assert end.value.code == status
    found = capsys.readouterr()
    assert (printed or str(tmp_path / "runs")) in found.out + found.err
