"""Every command of the pages is run: here, with `--dry-run` or `make -n`, by another test or by the rehearsal."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pages
import pytest
import shrunk
import tiny
import typer
import yaml
from small_sweep import Small
from test_dry_runs import FACTS
from test_named_sweeps import TRIALS
from typer.testing import CliRunner

import platform.sweep as sweep
from analysis import paper
from tests.rehearsal import page as cluster
from trainables.benchmarks import fictional

BY_TESTS = {
    r"python -m platform\.(sweep|status) tofu_tiny --storage s3://bucket/folder.*": (
        "test_s3_sweep.py",
        ("platform.sweep", "platform.status", "s3://bucket"),
    ),
    r"python -m platform\.status tofu_tiny": ("test_status.py", ("platform.status",)),
    r"python -m platform\.tracking sync \w+": ("test_tracking.py", ('"platform.tracking", "sync"',)),
    r"python -m analysis\.report tofu_tiny": ("test_analysis_report.py", ('run_module("analysis.report"',)),
    r"python -m trainables\.export ID --output DIR": ("test_export.py", ('"trainables.export"', '"--output"')),
    r"python -m trainables\.evaluate --benchmark own .*": (
        "test_own_sweep.py",
        ('"trainables.evaluate"', '"--source"'),
    ),
    r"\.venv/bin/mlflow ui --backend-store-uri .*": ("test_browser.py", ('"mlflow", "ui", "--backend-store-uri"',)),
    r"python -m trainables\.export \.\./x": ("test_security.py", ("../",)),
}
"""A command's pattern -> the tests that run its like, and words that stand there."""
NOBODY = {
    "export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... AWS_DEFAULT_REGION=eu-central-1": "the shell's own; the "
    "same names lead to the object store of tests/conftest.py",
    "pre-commit install": "a tool that is not among our dependencies; its hooks run below",
    "hf auth login": "asks for a person's token",
    ".venv/bin/python -m pytest tests/test_rectification.py": "is a part of these very tests",
}
"""Commands that nothing runs, and why."""
HERE = {".venv/bin/python tests/fault_report.py": "test_the_table_of_faults_is_printed"}
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
    block = "```\npython -m platform.keep x      # new\n```\n\n```text\npython -m a.b\n```\n"
    text = f"a\n\n{block}and `python -m platform.new x`."
    assert unrun(pages.commands(text)) == ["python -m platform.keep x", "python -m platform.new x"]


def test_no_exception_outlives_its_command() -> None:
    assert [line for line in (*NOBODY, *HERE) if line not in TYPED] == []
    assert [one for one in BY_TESTS if not any(re.fullmatch(one, line) for line in TYPED)] == []


@pytest.mark.parametrize("pattern", BY_TESTS)
def test_the_other_tests_run_what_they_are_said_to(pattern: str, root: Path) -> None:
    file, words = BY_TESTS[pattern]
    source = (root / "tests" / file).read_text(encoding="utf-8")
    assert [word for word in words if word not in source] == []
    for line in (line for line in TYPED if re.fullmatch(pattern, line) and line.startswith("python -m ")):
        assert set(re.findall(r"--[a-z-]+", line)) <= options(line.split()[2]), line


def options(module: str) -> set[str]:
    """The long options of a command."""
    app = typer.Typer(add_completion=False)
    app.command()(importlib.import_module(module).main)
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
        [sys.executable, "tests/fault_report.py"],
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
        given = ["tests/pages.py"] if hook.get("pass_filenames", True) else []
        done = subprocess.run([sys.executable, *rest, *given], cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# what the pages say


def test_every_page_is_followed_or_a_record(root: Path) -> None:
    found = {path.relative_to(root).as_posix() for path in root.glob("docs/*.md")}
    assert found | {"README.md", "CONTRIBUTING.md"} == {*pages.PAGES, *pages.RECORDS}


@pytest.mark.parametrize("page", pages.PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert [str(path) for path in pages.links(page) if not path.exists()] == []


def test_the_readme_is_short(root: Path) -> None:
    assert 150 <= len(pages.read("README.md").splitlines()) <= 250


def test_the_readmes_numbers_are_the_example_reports(root: Path) -> None:
    """Rows in order, cell by cell; and the sentence that the report begins with."""
    shown = pages.rows(pages.read("README.md"), "Method | forget05 FQ")
    report = pages.rows("\n" + pages.read("docs/example_report/tables/main.md"), "Method")
    places = [report.index(row) for row in shown]
    assert len(shown) == 8
    assert all(report[at - 1] in shown for row, at in zip(shown, places, strict=True) if row[0] == "w/ GRU")
    (quoted,) = re.findall(r'"(GRU improved [^"]*)"', pages.read("README.md"))
    assert quoted in (root / "docs/example_report/index.html").read_text(encoding="utf-8")


def test_hours_of_every_sweep_are_those_of_its_dry_run() -> None:
    """FACTS and TRIALS are compared with dry runs elsewhere."""
    told = {row[0].strip("`"): row[2:8] for row in pages.rows(pages.read("docs/reproduction.md"), "sweep | fills")}
    assert told.keys() == FACTS.keys()
    for name, (trials, gpus, memory, hours, disk, grid) in told.items():
        facts = FACTS[name]
        assert (int(trials), float(disk)) == (facts.trials, facts.disk), name
        assert hours == ("" if facts.hours is None else f"{facts.hours:.2f}"), name
        assert (gpus, memory) == (("0", "") if facts.hours is None else (str(facts.ranks), f"{facts.memory:.2f}")), name
        assert name not in TRIALS or int(grid) == TRIALS[name][1], name


@pytest.mark.slow
def test_hours_of_the_grids(tmp_path: Path) -> None:
    told = {row[0].strip("`"): row[7:9] for row in pages.rows(pages.read("docs/reproduction.md"), "sweep | fills")}
    app = typer.Typer(add_completion=False)
    app.command()(sweep.main)
    for name in TRIALS:
        done = CliRunner().invoke(app, [name, "--dry-run", "--json", "--storage", str(tmp_path / "runs")])
        plan = yaml.safe_load(done.stdout)
        assert told[name] == [str(len(plan["trials"])), f"{plan['gpu_hours']:.2f}"], name


def test_errata_are_told() -> None:
    told = pages.rows(pages.read("docs/reproduction.md"), "table | cell")
    assert told == [
        [
            f"`{one.table}`",
            ", ".join(f"{name} {value}" for name, value in one.where.items()),
            one.printed,
            one.corrected or "not known",
        ]
        for one in paper.ERRATA
    ]
