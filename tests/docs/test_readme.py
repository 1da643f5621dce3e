"""Every command of the pages is run: here, with `--dry-run` or `make -n`, by another test or by the rehearsal."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

import platform.sweep as sweep
from tests.rehearsal import page as cluster
from tests.support import pages, shrunk, tiny
from tests.support.small_sweep import Small
from trainables.data import fictional

BY_TESTS = {
    r"python -m platform\.sweep tofu_tiny --storage s3://bucket/folder.*": (
        "test_s3_sweep.test_a_lost_result_runs_again_and_no_other",
        ("platform.sweep",),
    ),
    r"python -m platform\.status tofu_tiny --storage s3://bucket/folder": (
        "test_s3_sweep.test_views_from_machines_that_have_nothing",
        ("platform.status", "tofu_tiny"),
    ),
    r"python -m platform\.status tofu_tiny": (
        "test_limits_end_to_end.test_spent_gpu_hours_stop_a_sweep_that_goes_on_with_more",
        ("platform.status", "tofu_tiny"),
    ),
    r"python -m platform\.tracking sync \w+": (
        "test_tracking.test_command_syncs_what_the_storage_holds",
        ("platform.tracking", "sync"),
    ),
    r"python -m analysis\.report tofu_tiny": ("test_report.test_report_command", ("analysis.report",)),
    r"python -m trainables\.export ID --output DIR": ("test_export.exported", ("trainables.export", "--output")),
    r"python -m trainables\.evaluate --benchmark own .*": (
        "test_own_sweep.test_the_sweep_ends_with_the_chosen_model",
        ("trainables.evaluate", "--benchmark", "own", "--model", "--source", "--output"),
    ),
    r"\.venv/bin/mlflow ui --backend-store-uri .*": (
        "test_browser.server",
        ("-m", "mlflow", "ui", "--backend-store-uri"),
    ),
    r"python -m trainables\.export \.\./x": (
        "test_security.test_export_takes_an_id_and_no_path",
        ("../../elsewhere",),
    ),
}
"""A command's pattern -> the test or fixture that runs its like, and the words that it gives to what runs them.

Which are run was found by reading them; the words keep it so. The last one is called as the function that it is, and
MLflow's page is opened where there is a Chromium.
"""
NOBODY = {
    "export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... AWS_DEFAULT_REGION=eu-central-1": "the shell's own; the "
    "same names lead to the object store of tests/conftest.py",
    "pre-commit install": "a tool that is not among our dependencies; its hooks run below",
    "hf auth login": "asks for a person's token",
    ".venv/bin/python -m pytest tests/trainables/methods/test_rectification.py": "is a part of these very tests",
}
"""Commands that nothing runs, and why."""
HERE = {".venv/bin/python tests/faults/report.py": "test_the_table_of_faults_is_printed"}
TYPED = pages.all_commands()
MADE = [line for line in TYPED if line.startswith("make ")]
TRIED = [line for line in TYPED if re.match(r"python -m platform\.sweep (?!.*(--cluster|s3://))", line)]


def unrun(lines: list[str]) -> list[str]:
    """Those that nobody runs."""
    known = {*MADE, *TRIED, *NOBODY, *HERE, *cluster.commands()}
    return [line for line in lines if line not in known and not any(re.fullmatch(one, line) for one in BY_TESTS)]


def test_every_command_of_the_pages_is_run_by_somebody() -> None:
    assert len(TYPED) > 40
    assert unrun(TYPED) == []


def test_a_new_command_that_nobody_runs_is_found() -> None:
    block = "```\npython -m platform.state.weights x      # new\n```\n\n```text\npython -m a.b\n```\n"
    text = f"a\n\n{block}and `python -m platform.new x`."
    assert unrun(pages.commands(text)) == ["python -m platform.state.weights x", "python -m platform.new x"]


def test_no_exception_outlives_its_command() -> None:
    assert [line for line in (*NOBODY, *HERE) if line not in TYPED] == []
    assert [one for one in BY_TESTS if not any(re.fullmatch(one, line) for line in TYPED)] == []


@pytest.mark.parametrize("pattern", BY_TESTS)
def test_the_other_tests_run_what_they_are_said_to(pattern: str, root: Path) -> None:
    name, words = BY_TESTS[pattern]
    file, _, function = name.partition(".")
    (path,) = (root / "tests").rglob(f"{file}.py")
    source = path.read_text(encoding="utf-8")
    assert set(words) <= given(source, function)
    for line in (line for line in TYPED if re.fullmatch(pattern, line) and line.startswith("python -m ")):
        assert set(re.findall(r"--[a-z-]+", line)) <= options(line.split()[2]), line


def given(source: str, function: str) -> set[str]:
    """The words in the calls and lists of a test, or of a fixture that a test of that file takes."""
    tree = ast.parse(source)
    (found,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    assert found in tests or any(function in {argument.arg for argument in test.args.args} for test in tests)
    calls = (part for node in ast.walk(found) if isinstance(node, ast.Call) for part in node.args)
    lists = (part for node in ast.walk(found) if isinstance(node, ast.List | ast.Tuple) for part in node.elts)
    return {part.value for part in (*calls, *lists) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def test_a_test_that_only_tells_of_a_command_does_not_run_it() -> None:
    told = """
def test_told(run):
    'run_module("platform.status")'
    # run_module("platform.status")
    run("other")

def used(run):
    run("platform.sweep", *["--storage"])

def test_user(used):
    run(used)

def idle(run):
    run("platform.sweep")
"""
    assert given(told, "test_told") == {"other"}
    assert given(told, "used") == {"platform.sweep", "--storage"}
    with pytest.raises(AssertionError):
        given(told, "idle")


def options(module: str) -> set[str]:
    """The long options of a command, a module or a package."""
    app = typer.Typer(add_completion=False)
    found = importlib.import_module(module)
    app.command()((importlib.import_module(f"{module}.__main__") if hasattr(found, "__path__") else found).main)
    return {name for parameter in typer.main.get_command(app).params for name in parameter.opts if name[:2] == "--"}


@pytest.mark.parametrize(
    "module", ["platform.sweep", "platform.status", "analysis.report", "trainables.run", "trainables.export"]
)
def test_the_guide_names_every_option_and_no_other(module: str) -> None:
    (synopsis,) = (
        body
        for language, body in pages.FENCE.findall(pages.read("docs/guide.md"))
        if "platform.sweep" in body and language
    )
    told = [part for part in synopsis.split("python -m ") if part.startswith(f"{module} ")]
    assert {name for part in told for name in re.findall(r"--[a-z-]+", part)} == options(module)


# run here


@pytest.fixture(scope="module")
def put(small: Small, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stands in the place of a person's files and folders."""
    place = tmp_path_factory.mktemp("mine")
    own = {f"{part}={part}.jsonl": f"{part}={file}" for part, file in tiny.own(place / "rows").items()}
    mine = {"target=DIR_OR_HUB_ID": f"target={shrunk.write_model(place / 'model', 'Llama')}"}
    fictional.write(place / "data", authors=200, questions=10, forget_percent=(1, 5, 10), seed=1)
    folders = {"benchmark.data=DATA": f"benchmark.data={place / 'data'}", "models=MODELS": f"models={small.models}"}
    return own | mine | folders


@pytest.mark.parametrize("line", TRIED)
def test_sweeps_of_the_pages_are_planned(line: str, put: dict[str, str], tmp_path: Path) -> None:
    words = [put.get(word, word) for word in shlex.split(line)[3:]]
    dry = [] if {"--list", "--dry-run"} & set(words) else ["--dry-run"]
    place = [] if "--list" in words else ["--storage", str(tmp_path / "runs")]
    app = typer.Typer(add_completion=False)
    app.command()(sweep.main)
    done = CliRunner().invoke(app, [*words, *dry, *place])
    assert done.exit_code == 0, done.output
    assert words[0] in done.stdout or "tofu_tiny" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", MADE)
def test_targets_of_the_pages_are_known_to_make(line: str, root: Path) -> None:
    done = subprocess.run([*shlex.split(line), "-n"], cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_names_every_target_and_what_may_be_set(root: Path) -> None:
    told = subprocess.run(["make", "help"], cwd=root, capture_output=True, text=True, check=True).stdout
    makefile = (root / "Makefile").read_text()
    (targets,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert re.findall(r"^  make ([a-z-]+) +\S", told, re.MULTILINE) == sorted(
        targets.split(), key=lambda target: makefile.index(f"\n{target}:")
    )
    assert set(re.findall(r"\$\(?(?:or )?\$?\(?([A-Z]+)\)", makefile)) - {"MAKEFILE_LIST"} >= {"ARGS", "PYTHON"}
    assert all(f"{name}=" in told for name in ("ARGS", "PYTHON", "ROUNDS", "SEED", "SCRIPT"))
    assert max(map(len, told.splitlines())) <= 120


def test_the_table_of_faults_is_printed(root: Path, tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    log.write_text("")
    done = subprocess.run(
        [sys.executable, "tests/faults/report.py"],
        cwd=root,
        env={"FAULTS_LOG": str(log)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "| fault | rounds | lost |" in done.stdout


def test_hooks_are_local_and_pass(root: Path) -> None:
    """As pre-commit runs them, with this process's Python for that of .venv."""
    told: dict[str, Any] = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())
    (repository,) = told["repos"]
    assert repository["repo"] == "local"
    assert len(repository["hooks"]) == 3
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        python, *rest = shlex.split(hook["entry"])
        assert python == ".venv/bin/python"
        given = ["tests/support/pages.py"] if hook.get("pass_filenames", True) else []
        done = subprocess.run([sys.executable, *rest, *given], cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
