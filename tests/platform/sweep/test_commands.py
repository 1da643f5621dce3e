"""What a person types and gets: listings, dry runs, and one line for every way to be wrong."""

import importlib
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from platform.sweep import finish
from tests.support.small_sweep import Small
from tests.support.starts import assert_light, in_process, invoke, refuse
from trainables.storage.folder_storage import Storage


def dry_run(small: Small, place: Path, *arguments: object) -> str:
    """Return what a dry run of tofu_tiny on the small folders prints."""
    done = in_process("tofu_tiny", "--dry-run", "--storage", place / "runs", *small.flags(), *arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    assert not (place / "runs").exists()
    return done.stdout


def test_list_names_every_sweep(root: Path) -> None:
    done = in_process("--list")
    assert (done.exit_code, done.stderr) == (0, "")
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert set(names) == {path.stem for path in (root / "search_spaces").glob("*.py")} - {"__init__"}
    rows = json.loads(in_process("--list", "--json").stdout)
    assert [row["name"] for row in rows] == names
    assert all(row.keys() == {"name", "title"} and row["title"] for row in rows)


def test_dry_run_tells_what_would_run(small: Small, tmp_path: Path) -> None:
    said = dry_run(small, tmp_path, "--strategy", "paper", "--only", "method=ga,npo")
    assert "strategy paper, 12 trials, 0 done" in said
    assert "needs" not in said
    hub = in_process("tofu_tiny", "--dry-run", "--storage", tmp_path / "runs").stdout
    assert "needs: data set locuslab/TOFU from the hub" in hub
    assert "\n  not checked: needs the hub\n" in hub
    assert "--set benchmark.data=DIR" in hub

    plan = json.loads(dry_run(small, tmp_path, "--json", "--seeds", "0,1", "--strategy", "optuna", "--trials", 3))
    expected = small.plan(Storage(tmp_path / "runs"), "seed=0,1", strategy="optuna")
    assert (plan["sweep"], plan["hash"], plan["strategy"], plan["budget"]) == ("tofu_tiny", expected.hash, "optuna", 3)
    assert [trial["id"] for trial in plan["trials"]] == [trial.id() for trial in expected.trials]
    first = {"id": expected.trials[0].id(), "label": "ga-forget01-s0", "study": "forget01/ga/none", "done": False}
    assert plan["trials"][0] == first
    assert {"study": "forget10/npo/gru", "trials": 3, "done": 0} in plan["studies"]
    assert (plan["storage"], plan["models"], plan["needs"]) == (str(tmp_path / "runs"), [], [])
    assert plan["resources"]["cpus"] == 1
    assert plan["disk_bytes"] > 0


def test_listing_and_planning_are_light_and_quick(small: Small, root: Path, tmp_path: Path) -> None:
    planned = ["tofu_tiny", "--dry-run", *small.flags(), "--storage", str(tmp_path / "runs")]
    assert_light(root, "platform.sweep", ["--list"], planned)


PACKAGES = ("platform.sweep", "platform.tracking", "platform.cluster")
OPTION = re.compile(r" (--[a-z-]+)")
MODULES = ("platform.status", "analysis.report")
MODULES += tuple(f"trainables.{name}" for name in ("run", "export", "chat", "stress", "evaluate"))


@pytest.mark.parametrize("module", [*MODULES, *PACKAGES])
def test_help_fits_a_terminal_and_its_example_has_options_that_there_are(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main = importlib.import_module(f"{module}.__main__" if module in PACKAGES else module).main
    lines = invoke(main, "--help").stdout.splitlines()
    (example,) = (line for line in lines if f" python -m {module} " in line)
    assert (max(map(len, lines)), [line for line in lines if "…" in line]) == (80, [])
    assert len(lines) <= 48
    assert len(re.findall(r"^│ [* ]*--", "\n".join(lines), re.MULTILINE)) <= (15 if "sweep" in module else 20)
    assert all(any(f" {option} " in line for line in lines if line[0] == "│") for option in OPTION.findall(example))


@pytest.mark.parametrize("module", [*MODULES, *PACKAGES])
def test_a_python_without_the_packages_is_told_of_make_setup(module: str, root: Path) -> None:
    done = subprocess.run([sys.executable, "-S", "-m", module, "x"], cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "lacks the packages; type: make setup; then take .venv/bin/python" in done.stderr


def test_baselines_stay_beside_what_is_compared_and_the_rest_is_named(small: Small, tmp_path: Path) -> None:
    said = dry_run(small, tmp_path, "--only", "rectifier.gamma=0.05", "--only", "benchmark.split=forget01")
    kept = re.findall(r"^  forget01/(\S+) ", said, re.MULTILINE)
    assert {"ga/none", "ga/gru", "npo/none", "npo/gru"} <= set(kept)
    assert not any(name.startswith(("tv/", "tru/")) for name in kept)
    assert re.search(r"^--only leaves out \d+ of the studies, such as forget", said, re.MULTILINE)
    assert "leaves out" not in dry_run(small, tmp_path)


DRY = ("tofu_tiny", "--dry-run")
SEVERAL = "--trials 4 --seeds 0,one --keep paretto --set training.lrr=1 --set training.lr --set backbone=phi9 "
SEVERAL += "--storage /proc/nope --resume --new --reason failed"
SEVERAL_SAID = "--trials 4: for --strategy optuna; --strategy grid has its own order|--seeds '0,one': write whole |0-4|"
SEVERAL_SAID += "--keep: unknown choice 'paretto'; did you mean 'pareto'?|unknown field 'training.lrr'|"
SEVERAL_SAID += "--set training.lr: write FIELD=VALUE|backbone=phi9|--storage: cannot write to '/proc/nope'|"
SEVERAL_SAID += "--resume and --new exclude each other|--reason: |add --retry-failed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), ["name a sweep: ", "tofu_tiny"]),
        (("tofu_tini",), ["unknown sweep 'tofu_tini'; did you mean 'tofu_tiny'? known: "]),
        (("tofu_tiny", "--retry-failed", "--reason", "oom"), ["unknown reason 'oom'", "out_of_memory, lost"]),
        ((*DRY, "--strategy", "gird"), ["--strategy", "'gird'", "grid, paper, optuna"]),
        ((*DRY, "--seeds", "0-99999999999"), ["--seeds '0-99999999999': ", "1000 at most"]),
        ((*DRY, "--set", "references.seeds=999999999"), ["references.seeds: ", "less than or equal to 100"]),
        ((*DRY, "--set", "benchmark.data=./nowhere"), ["benchmark.data", "'./nowhere'"]),
        (("quickstart", "--dry-run", "--set", "method=rmu"), ["objective.layer: RMU", "the model has 2, got 7"]),
        ((*DRY, "--set", "search.sampler=tpa"), ["search.sampler: ", "'tpe', ", "(got 'tpa')"]),
        ((*DRY, "--storage", "s4://bucket/runs"), ["--storage", "'s4://bucket/runs'", "file://"]),
        ((*DRY, "--seeds", "0", "--set", "seed=1"), ["--seeds and --set seed=: give one of them"]),
        (("tofu_tiny", "--json"), ["--json: goes with --list or --dry-run"]),
        ((*DRY, *"--set training.warmup_epochs=1 --set training.warmup_steps=2".split()), ["warmup_epochs=1 stands"]),
        ((*DRY, *SEVERAL.split()), SEVERAL_SAID.split("|")),
        ((*DRY, *"--only method=gd,np --only metod=ga".split()), ["has method=np; did you mean 'npo'?", "'metod'"]),
    ],
    ids=lambda value: " ".join(map(str, value))[:40] or "nothing",
)
def test_bad_input_is_one_line_that_says_how_to_mend_it(
    arguments: tuple[Any, ...], said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: Small
) -> None:
    monkeypatch.setenv("UNLEARN_STORAGE", str(tmp_path / "runs"))
    flags = small.flags() if arguments[:1] == ("tofu_tiny",) and "benchmark.data=./nowhere" not in arguments else []
    text = refuse(*arguments[:1], *flags, *arguments[1:])
    assert [part for part in said if part not in text] == [], text
    assert not (tmp_path / "runs").exists(), "a start that is refused leaves nothing"


def test_storage_that_cannot_be_written(small: Small, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    places = (tmp_path / "file", tmp_path / "file" / "runs", Path("/proc/nope"))
    for more, place in itertools.product(([], ["--dry-run"]), places):
        text = refuse("tofu_tiny", *more, "--storage", place, *small.flags())
        assert f"--storage: cannot write to '{place}'" in text


def test_the_quickstart_ends_with_a_command_that_can_be_typed(small: Small, tmp_path: Path) -> None:
    words = finish.QUICKSTART_FOLLOW_UP.removeprefix("tofu_tiny ")
    assert "strategy grid, 10 trials, 0 done" in dry_run(small, tmp_path, *words.split())
