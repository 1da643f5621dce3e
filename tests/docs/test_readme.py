"""Every command of the pages is run: here, with `--dry-run` or `make -n`, by another test or by the rehearsal."""

import importlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

from tests.support import pages, shrunk_sweeps, tiny
from tests.support.small_sweep import Small
from tests.support.starts import in_process
from trainables.data import fictional

BY_TESTS = {
    r"python -m platform\.sweep tofu_tiny --storage s3://bucket/folder.*": "test_s3_sweep",
    r"python -m platform\.status tofu_tiny --storage s3://bucket/folder": "test_s3_sweep",
    r"python -m platform\.status \w+": "test_sweep_end_to_end",
    r"python -m platform\.tracking sync \w+": "test_runs",
    r"python -m analysis\.report \w+": "test_report",
    r"python -m analysis\.report \w+ \w+": "test_benchmark_reports",
    r"python -m trainables\.run runs/trials/ID/config\.json --storage again": "test_run",
    r"python -m trainables\.export ID --output DIR": "test_export",
    r"python -m trainables\.export ID --push ORG/NAME": "test_export",
    r"python -m trainables\.export ID --settings FILE\.yaml": "test_export",
    r"python -m trainables\.chat (ID|MODEL) .*": "test_chat",
    r"python -m trainables\.evaluate --benchmark own .*": "test_own_sweep",
    r"python -m trainables\.evaluate --model DIR --split forget05 --measures all .*": "test_tofu_measures",
    r"python -m trainables\.stress (ID|DIR) .*": "test_stress",
    r"\.venv/bin/mlflow ui --backend-store-uri .*": "means",
    r"python -m trainables\.export \.\./x": "test_export",
    r"(srun --gpus=1 )?python -m trainables\.export ID --output DIR --storage .*": "test_export",
    r"python -m platform\.cluster check clusters/kuberay\.yaml": "test_cluster_file",
    r"python -m platform\.cluster account cluster\.yaml": "test_cluster_account",
    r"python -m platform\.sweep tofu_llama --cluster clusters/kuberay\.yaml": "test_kuberay_jobs",
    r"python -m platform\.status tofu_llama --storage s3://BUCKET/FOLDER": "test_s3_sweep",
}
"""A command's pattern -> the file of tests that runs its like. MLflow's page is opened if there is a Chromium."""
NOBODY = {
    "export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... AWS_DEFAULT_REGION=eu-central-1": "the shell's own; the "
    "same names lead to the object store of tests/conftest.py",
    "export CUDA_VISIBLE_DEVICES=0,1": "the shell's own; what it leaves: test_capacity",
    "source .venv/bin/activate": "the shell's own; what it puts on the PATH is named by its path here",
    "pre-commit install": "a tool that is not among our dependencies; its hooks run below",
    "hf auth login": "asks for a person's token",
    "docker build -t REGISTRY/unlearning:TAG .": "test_cluster_file builds it",
    "docker push REGISTRY/unlearning:TAG": "the engine's own",
    "kubectl create secret generic unlearning --from-env-file=.env": "Kubernetes' own",
    "kubectl create --dry-run=server --filename clusters/kuberay.yaml": "Kubernetes' own",
    "squeue --me": "Slurm's own",
    "export UNLEARN_STORAGE=/scratch/me/unlearning": "the shell's own",
    ".venv/bin/python -m pytest tests/trainables/methods/test_rectification.py": "is a part of these very tests",
}
"""Commands that nothing runs, and why."""
TYPED = list(dict.fromkeys(command for page in pages.PAGES for command in pages.commands(pages.read(page))))
MADE = [line for line in TYPED if line.startswith("make ")]
TRIED = [line for line in TYPED if re.match(r"python -m platform\.sweep (?!.*(--cluster|s3://))", line)]


def test_every_command_of_the_pages_is_run_by_somebody(root: Path) -> None:
    """A rehearsal runs those that stand in it as on the pages."""
    source = "".join(path.read_text() for path in (root / "tests/rehearsal").glob("rehearse*.py"))
    rehearsed = [line for line in pages.cluster_commands() if f'"{line}"' in source]
    known = {*MADE, *TRIED, *NOBODY, *rehearsed}
    assert (len(TYPED) > 40, len(rehearsed) > 8) == (True, True)
    assert [line for line in TYPED if line not in known and not any(re.fullmatch(one, line) for one in BY_TESTS)] == []


@pytest.mark.parametrize("pattern", BY_TESTS)
def test_commands_that_other_tests_run(pattern: str, root: Path) -> None:
    """The file of tests is there and names the command's module; the page's options are the module's."""
    (path,) = (root / "tests").rglob(f"{BY_TESTS[pattern]}.py")
    for line in (line for line in TYPED if re.fullmatch(pattern, line)):
        words = line.partition("python -m ")[2]
        assert (words.split() or ["mlflow"])[0].rpartition(".")[2] in path.read_text(encoding="utf-8")
        assert set(re.findall(r"--[a-z-]+", words)) <= (options(words.split()[0]) if words else set()), line


def options(module: str) -> set[str]:
    """The long options of a command, a module or a package."""
    app = typer.Typer(add_completion=False)
    found = importlib.import_module(module)
    app.command()((importlib.import_module(f"{module}.__main__") if hasattr(found, "__path__") else found).main)
    return {name for parameter in typer.main.get_command(app).params for name in parameter.opts if name[:2] == "--"}


@pytest.mark.parametrize(
    "module",
    ["platform.sweep", "platform.status", "analysis.report", "trainables.run", "trainables.export", "trainables.chat"],
)
def test_the_guide_names_every_option_and_no_other(module: str) -> None:
    (synopsis,) = (
        body
        for language, body in pages.FENCE.findall(pages.read("docs/guide.md"))
        if "platform.sweep" in body and language
    )
    commands = [part for part in synopsis.split("python -m ") if part.startswith(f"{module} ")]
    assert {name for part in commands for name in re.findall(r"--[a-z-]+", part)} == options(module)


@pytest.fixture(scope="module")
def put(small: Small, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stands in the place of a person's files and folders."""
    place = tmp_path_factory.mktemp("mine")
    own = {f"{part}={part}.jsonl": f"{part}={file}" for part, file in tiny.own(place / "rows").items()}
    own["retain=auto,retain.jsonl"] = own["retain=retain.jsonl"].replace("=", "=auto,", 1)
    for name in ("1.jsonl", "2.jsonl"):
        tiny.write_rows(place / "requests" / name, [{"text": tiny.text(len(name), 9)}])
    own["requests=DIR"] = f"requests={place / 'requests'}"
    mine = {"target=DIR_OR_HUB_ID": f"target={shrunk_sweeps.write_model(place / 'model', 'Llama')}"}
    fictional.write_fictional_authors(place / "data", authors=200, questions=10, forget_percent=(1, 5, 10), seed=1)
    folders = {"benchmark.data=DATA": f"benchmark.data={place / 'data'}", "models=MODELS": f"models={small.models}"}
    return own | mine | folders


@pytest.mark.parametrize("line", TRIED)
def test_sweeps_of_the_pages_are_planned(line: str, put: dict[str, str], tmp_path: Path) -> None:
    words = [put.get(word, word) for word in shlex.split(line)[3:]]
    dry = [] if {"--list", "--dry-run"} & set(words) else ["--dry-run"]
    place = [] if "--list" in words else ["--storage", str(tmp_path / "runs")]
    done = in_process(*words, *dry, *place)
    assert done.exit_code == 0, done.output
    assert words[0] in done.stdout or "tofu_tiny" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", MADE)
def test_targets_of_the_pages_are_known_to_make(line: str, root: Path) -> None:
    done = subprocess.run([*shlex.split(line), "-n"], cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
