"""What the scripts of bench/ share: a wrong folder is said at once, and every row tells what it was made with."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pytest

from bench import _script
from trainables.common import provenance

SCRIPTS = sorted(path.stem for path in Path(_script.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_file_that_cannot_be_written_is_said_before_the_work(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"bench.{name}").main(["--json", "/nowhere/rows.json"])
    assert ended.value.code == 2
    assert "--json: no folder /nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "field", "folder"),
    [("step", "model", "models/tofu_tiny/full")]
    + [(name, "models", "models/tofu_tiny") for name in ("evaluate", "overhead", "sweep")],
)
def test_without_folders_it_says_what_to_name(
    name: str, field: str, folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNLEARN_SHARED", "/nowhere")
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"bench.{name}").main([])
    assert ended.value.code == 2
    assert f"--{field}: no folder /nowhere/{folder}" in capsys.readouterr().err


def test_a_command_that_fails_ends_the_script_with_its_words() -> None:
    seconds, told = _script.run("-c", "print(6 * 7)")
    assert (seconds > 0, told) == (True, "42\n")
    with pytest.raises(SystemExit, match="ended with 3:\nalmost\n\nno room"):
        _script.run("-c", "import sys; print('almost'); print('no room', file=sys.stderr); sys.exit(3)")


def test_rows_tell_what_they_were_made_with(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    _script.save(file, [{"ratio": 1.5}, {"ratio": 2.0}], device="a machine")
    told = {"device": "a machine", "cores": os.cpu_count(), **provenance.stamp()}
    assert json.loads(file.read_text()) == [{"ratio": 1.5, **told}, {"ratio": 2.0, **told}]
    assert told.keys() >= {"versions", "commit", "dirty", "code"}
    _script.save(None, [{"ratio": 1.5}])
    assert list(tmp_path.iterdir()) == [file]
