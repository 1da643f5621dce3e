"""Whatever is typed or lies in a storage: a result, or one line that says what is wrong. Rows: test_fuzz_own_rows.py.

`make test-faults SEED=N` begins with another seed; every problem is told with its own, which makes it again alone:
`SEED=N ROUNDS=1`.
"""

import csv
import json
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from search_spaces.schema import sweep as spaces
from tests.docs.test_readme import options
from tests.support import fuzzing, shrunk_sweeps
from tests.support.environment import ROOT, RunModule, clean_environment

pytestmark = pytest.mark.faults
FIRST = int(os.environ.get("SEED") or 0)
SWEEPS = ("tofu_phi_uwc", "muse_books", "own")
"""Of three benchmarks, one with calibrations."""
POOL = (*fuzzing.NUMBERS, *fuzzing.WORDS, *fuzzing.PLACES, *(word for word in fuzzing.ODD if "\0" not in word))
"""No shell passes a zero byte on."""
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "platform.sweep": ("tofu_tiny",),
    "platform.status": ("own",),
    "platform.tracking": ("sync", "own"),
    "platform.cluster": ("check", "cluster.yaml"),
    "analysis.report": ("own",),
    "trainables.run": ("config.json",),
    "trainables.evaluate": (),
    "trainables.export": ("0123456789ab",),
}
MEMORY = 6 * 2**30
"""Bytes of data that a command may take: one that reads a file without end is stopped there."""


def dice_of(count: int) -> Iterator[tuple[int, random.Random]]:
    for seed in range(FIRST, FIRST + int(os.environ.get("ROUNDS") or count)):
        yield seed, random.Random(seed)


def find_problem(status: int | None, said: str) -> str:
    """Return what is wrong with how a command ended (None: stopped); empty if it is a result or one clear line."""
    if status is None:
        return "it does not end"
    if status not in (0, 1, 2) or "Traceback" in said:
        return f"status {status}: {said[-300:]}"
    told = any(line.startswith(("error: ", "╭─ Error")) or "Usage:" in line for line in said.splitlines())
    if status == 2 and not told:
        return f"no message: {said[-300:]}"
    return f"{len(said)} characters" if len(said) > 6000 and "Usage:" not in said else ""


def run_command(folder: Path, module: str, *arguments: object) -> tuple[int | None, str, str]:
    """Run `python -m module arguments` in `folder`; return its status, None if it had to be stopped, and its texts."""
    typed = [sys.executable, "-m", module, *map(str, arguments)]
    environment = clean_environment(PYTHONPATH=str(ROOT), COLUMNS="160", NO_COLOR="1")
    with subprocess.Popen(
        typed, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
        try:
            out, said = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            return None, "", ""
    return process.returncode, out, said


@pytest.fixture(scope="module")
def storages(join: RunModule, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[str]]]:
    """Return for each sweep the storage of a real run, and the arguments that began it."""
    found = {}
    for name in SWEEPS:
        place = tmp_path_factory.mktemp(name)
        typed = shrunk_sweeps.SWEEPS[name].typed(place, spaces.import_sweep(name))
        done = join(*typed, "--storage", place / "runs", "--keep", "all", timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        found[name] = (place / "runs", typed)
    return found


def type_line(dice: random.Random, store: Path, folder: Path) -> tuple[str, list[str]]:
    """Return a module and arguments of which some are odd; nothing that it says is run, and it writes to `folder`."""
    module = dice.choice(list(ARGUMENTS))
    words, known = list(ARGUMENTS[module]), sorted(options(module) - {"--help", "--cluster"})
    if words and dice.random() < 0.25:
        words[dice.randrange(len(words))] = dice.choice(POOL)
    fitting = ("benchmark.split=forget05", "training.lr=1e-4", "method=ga", "0,1", str(store), str(folder / "out"))
    for name in dice.choices(known, k=dice.choice([0, 1, 1, 2, 3])) if known else ():
        words += [name] if dice.random() < 0.15 else [name, dice.choice(POOL if dice.random() < 0.7 else fitting)]
    words += ["--dry-run"] if module == "platform.sweep" else []
    return module, [*words, *(["--storage", str(store)] if "--storage" in known and dice.random() < 0.9 else [])]


def test_command_lines(storages: dict[str, tuple[Path, list[str]]], root: Path, tmp_path: Path) -> None:
    """200 of them, in a folder that has what the commands look for."""
    place = tmp_path / "checkout"
    shutil.copytree(storages["own"][0], place / "runs")
    shutil.copy(root / "cluster.yaml", place)
    problems = []
    for seed, dice in dice_of(200):
        module, words = type_line(dice, place / "runs", tmp_path)
        status, _, said = run_command(place, module, *words)
        if problem := find_problem(status, said):
            problems.append(f"seed {seed}: {module} {[word[:60] for word in words]}: {problem}")
    assert not problems, "\n".join(problems)


def damage_storage(root: Path, dice: random.Random) -> str:
    """Cut, empty, fill or remove one file of a storage; return what was done."""
    patterns = ("trials/*/result.json", "trials/*/*", "sweeps/*.json", "shared/**/*", "mlflow.db", "trials/*/weights/*")
    file = dice.choice([path for path in root.glob(dice.choice(patterns)) if path.is_file()])
    content, way = file.read_bytes(), dice.choice(("cut", "emptied", "filled", "removed"))
    file.unlink()  # the copy is made of hard links
    if way != "removed":
        file.write_bytes({"cut": content[: len(content) // 2], "filled": dice.randbytes(1000)}.get(way, b""))
    return f"{file.relative_to(root)}: {way}"


def test_damaged_storages(storages: dict[str, tuple[Path, list[str]]], tmp_path: Path) -> None:
    """60 of them: each command ends with a result or one clear line, and all agree on how many trials are done."""
    problems = []
    for seed, dice in dice_of(60):
        name = dice.choice(SWEEPS)
        source, typed = storages[name]
        store = tmp_path / "runs"
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(source, store, copy_function=os.link)
        done_to_it = damage_storage(store, dice)
        found = judge(tmp_path, name, typed, store)
        problems += [f"seed {seed}: {name}, {done_to_it}: {problem}" for problem in found]
    assert not problems, "\n".join(problems)


def judge(place: Path, name: str, typed: list[str], store: Path) -> Iterator[str]:
    """Yield what is wrong with what the commands say of a damaged storage."""
    lines = {
        "platform.status": [name, "--json"],
        "platform.sweep": [*typed, "--dry-run", "--json"],
        "analysis.report": [name, "--output", str(place / "report")],
        "platform.tracking": ["sync", name],
    }
    shutil.rmtree(place / "report", ignore_errors=True)
    printed = {}
    for module, words in lines.items():
        status, out, said = run_command(ROOT, module, *words, "--storage", store)
        if problem := find_problem(status, said):
            yield f"{module}: {problem}"
        if status == 0:
            printed[module] = out
    done = {}
    if "platform.status" in printed:
        done["status"] = json.loads(printed["platform.status"])["counts"]["done"]
    if "platform.sweep" in printed:
        done["plan"] = sum(trial["done"] for trial in json.loads(printed["platform.sweep"])["trials"])
    if "analysis.report" in printed:
        shown = [*csv.DictReader((place / "report/tables/trials.csv").open(encoding="utf-8"))]
        done["report"] = sum(trial["status"] == "finished" for trial in shown)
    if len(set(done.values())) > 1:
        yield f"trials done: {done}"
