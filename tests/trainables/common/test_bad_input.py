"""Whatever is typed: a plan and status 0, or status 2 and one line that says what is wrong. Never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings

import platform.sweep.__main__ as sweep
from tests.support import fuzzing
from tests.support.small_sweep import Small
from trainables import run
from trainables.common import cli
from trainables.config.settings import Benchmark, Model, Rectifier, RetainEvaluation, TaskVector
from trainables.config.trial import Trial

EXAMPLES = pytest.mark.parametrize("examples", [50, pytest.param(2000, marks=pytest.mark.slow)])
SWEEPS = "quickstart tofu_tiny tofu_llama tofu_phi_tru tofu_gamma tofu_phi_uwc wmdp_rmu muse_books own".split()
LONGEST = 4000
"""Characters of a message: a person reads it."""


def run_here(command: Callable[[], Any]) -> tuple[int, str, str]:
    """Return exit status, stdout and stderr of a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            command()
        except typer.Exit as ended:
            return ended.exit_code, out.getvalue(), err.getvalue()
    raise AssertionError("the command has no exit status")


def assert_clear(status: int, out: str, err: str) -> None:
    """Assert a valid outcome, or one printable line of a length that can be read."""
    if status == 0:
        assert err == ""
        return
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.endswith("\n")
    line = err[:-1]
    assert line.isprintable(), repr(line)
    assert len("error: ") < len(line) < LONGEST
    assert "Traceback" not in line


@EXAMPLES
def test_typed_words_give_a_plan_or_one_line(
    examples: int, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = {0: 0, 2: 0}

    @settings(max_examples=examples)
    @given(typed=fuzzing.typed(SWEEPS))
    def plan(typed: dict[str, Any]) -> None:
        known = small.settings() if typed["name"] == "tofu_tiny" else []
        arguments = {**typed, "set_": [*known, *typed["set_"]]}
        status, out, err = run_here(lambda: dry(**arguments))
        assert_clear(status, out, err)
        seen[status] += 1
        if status == 0:
            assert json.loads(out)["trials"]

    plan()
    assert min(seen.values()) > examples / 10, "the examples are all good or all bad"
    assert list(tmp_path.iterdir()) == []


def dry(**typed: Any) -> None:
    """`python -m platform.sweep NAME ... --dry-run --json` in this process."""
    same = {"list_": False, "address": None, "max_concurrent": None, "kept": "pareto", "resume": False, "new": False}
    sweep.main(**typed, **same, dry_run=True, as_json=True, retry_failed=typed["reason"] is not None)


STARTS = (
    Trial(method="npo", rectifier=Rectifier(name="gru", gamma=0.8, tau=1.0), target=Model(path="somebody/model")),
    Trial(
        method="tru",
        target=Model(path="somebody/model", fingerprint="hub:somebody/model@main"),
        benchmark=Benchmark(name="wmdp", data="a/b", split="bio", sources=("mmlu=a/b",), fingerprint="hub:a/b@main"),
        task_vector=TaskVector(stg=0.5),
        retain_evaluation=RetainEvaluation(path="runs/shared/x", fingerprint="0123"),
    ),
)


@EXAMPLES
@pytest.mark.parametrize("start", STARTS, ids=["objective", "vector"])
def test_configuration_is_taken_or_refused_in_one_line(examples: int, start: Trial, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    seen = {0: 0, 2: 0}

    def read() -> int:
        assert run._read(file).id()
        return 0

    def command() -> None:
        raise typer.Exit(cli.run_guarded(read))

    @settings(max_examples=examples)
    @given(document=fuzzing.configurations(start.model_dump(mode="json")))
    def check(document: Any) -> None:
        file.write_text(json.dumps(document), encoding="utf-8")
        status, out, err = run_here(command)
        assert_clear(status, out, err)
        seen[status] += 1

    check()
    assert seen[2] > examples / 10
