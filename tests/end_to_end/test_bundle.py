"""A bundle: a sweep's numbers and report in one file, from which others report, plan and run it again."""

from __future__ import annotations

import json
import random
import shlex
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from analysis import report
from platform.driver import run_sweep
from platform.state import manifest
from platform.state.trial_outcomes import SweepState
from tests.analysis.stats.test_row_bootstrap import rows
from tests.support import small_sweep, starts
from tests.support.environment import type_settings
from tests.support.small_sweep import Small
from tests.support.starts import RESULT_FIELDS, in_process, invoke
from tests.trainables.common.test_secrets import HIDDEN, SECRETS, SERVER
from trainables.benchmarks.tofu.aggregates import aggregate
from trainables.storage import atomic_files, bundle
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CAME_BACK, RESULT, ROWS, STEPS, WEIGHTS

signals = starts.signals
GA = ("--only", "method=ga", "--only", "benchmark.split=forget05", "--seeds", "0")
GRU = (*GA[:4], "--only", "rectifier.name=gru", "--seeds", "1")


@dataclass
class Made:
    """Folders of models and rows, a storage in which a small sweep ran by two commands, its report and bundle."""

    place: Path
    label: str
    trials: list[str]

    @property
    def store(self) -> Storage:
        return Storage(self.place / "runs")

    @property
    def file(self) -> Path:
        return self.place / "ga.zip"


def run_trials(state: SweepState, store: Storage, command: str, options: run_sweep.Options) -> int:
    """Write in the place of the driver what trials leave: numbers that follow from the id, rows with texts, weights."""
    for ref in state.plan.references:
        write_numbers(store.evaluation(ref.evaluation), id=ref.evaluation, model=ref.model.model_dump(mode="json"))
    for trial in state.left:
        folder = store.trial(trial.id())
        store.start_trial(trial.id(), trial.model_dump(mode="json"))
        steps = [{"step": step, "loss": 1 / step, "retain_loss": 2.0, "skipped": False} for step in (1, 2, 3)]
        atomic_files.write_rows(folder / STEPS, steps)
        (folder / WEIGHTS).mkdir()
        (folder / WEIGHTS / "model.safetensors").write_bytes(b"weights")
        fields = RESULT_FIELDS | {"id": trial.id(), "config": trial.model_dump(mode="json")}
        write_numbers(folder, **fields, training={"steps": 3, "skipped": 0}, topology={"device": "cpu"})
    manifest.write_manifest(state, store, command)
    return 0


def write_numbers(folder: Path, **fields: Any) -> None:
    """Write rows of an evaluation, result.json with their metrics."""
    dice = random.Random(folder.name)
    records = rows(dice, {"forget": 12, "retain": 9, "real_authors": 8, "world_facts": 7})
    for row in records:
        row |= {name: f"the {name} of {row['task']} {dice.random()}" for name in ("question", "answer", "generation")}
    atomic_files.write_rows(folder / ROWS, records)
    metrics = aggregate(records, "paper") | {"forget_quality": -20 * dice.random(), "forget_rows": 12}
    atomic_files.write_json(folder / RESULT, fields | {"metrics": metrics})


def sweep(*words: object) -> Any:
    """Run platform.sweep, its trials in this process; the command reads what was typed from sys.argv, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["sweep", *map(str, words)])
        patch.setattr(run_sweep, "run", run_trials)
        return in_process(*words)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    place = tmp_path_factory.mktemp("bundle")
    folders = small_sweep.write(place).settings()
    for words in (GA, GRU):
        done = sweep("tofu_tiny", *type_settings(folders), *words, "--storage", place / "runs")
        assert done.exit_code == 0, done.output
    (path,) = place.glob("runs/sweeps/*.json")
    found = Made(place, path.stem, json.loads(path.read_text())["trials"])
    hide_secrets(found)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SECRETS, "MLFLOW_TRACKING_URI": SERVER}.items():
            patch.setenv(name, value)
        done = invoke(report.main, "tofu_tiny", "--storage", found.store.root, "--bundle", found.file)
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(
        f"bundle: {found.file}, which names the paths that its commands and configurations name\n"
    )
    return found


def hide_secrets(made: Made) -> None:
    """Write secrets, as a library's message may hold them, into all files that a bundle is made of."""
    said = f"no answer from {SERVER}; {' '.join(SECRETS.values())}"
    for path in (made.place / "runs").glob("*/**/*.json"):
        document = atomic_files.read_json(path) or {}
        changed = document | {"title": said, "error": {"kind": "lost", "message": said}}
        atomic_files.write_json(path, changed)
    attack = {"attack": "nf4", "title": said, "step": 0, "before": 0.2, "after": 0.4, "target": 0.9, "share": 0.3}
    for key in made.trials:
        started = (made.store.result(key) or {})["started"]
        known = {"started": started, "shares": [attack | {"retain": 0.1}], "attacks": {}}
        atomic_files.write_json(made.store.stress(key) / CAME_BACK, known)


@pytest.fixture(scope="module")
def unpacked(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("elsewhere") / "theirs"
    with zipfile.ZipFile(made.file) as archive:
        archive.extractall(place)
    return place


def test_it_holds_numbers_and_neither_weights_nor_texts_nor_secrets(made: Made, unpacked: Path, root: Path) -> None:
    files = {path.relative_to(unpacked).as_posix(): path for path in unpacked.rglob("*") if path.is_file()}
    assert {f"trials/{key}/{name}" for key in made.trials for name in (RESULT, ROWS)} <= files.keys()
    assert {f"reports/{made.label}/index.html", f"sweeps/{made.label}.json", "bundle.json", "README.md"} <= files.keys()
    assert files["constraints.txt"].read_text() == (root / "constraints.txt").read_text()
    assert not [name for name in files if "weights" in name or name.endswith((".safetensors", ".db"))]
    texts = list_texts(made)
    assert len(texts) > 100
    for name, path in files.items():
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content = json.dumps(pyarrow.parquet.read_table(path).to_pylist()).encode() + content
        assert not [secret for secret in HIDDEN if secret.encode() in content], name
        assert not [text for text in texts if text.encode() in content], name
    assert files["stress/" + made.trials[0] + "/came_back.json"].read_text().count("***") > 1


def list_texts(made: Made) -> set[str]:
    """Return what was asked, to be answered and answered."""
    found = [row for path in (made.place / "runs").rglob(ROWS) for row in atomic_files.read_rows(path)]
    return {row[name] for row in found for name in ("question", "answer", "generation")}


def test_its_report_elsewhere_has_the_same_numbers(made: Made, unpacked: Path) -> None:
    done = invoke(report.main, made.label, "--storage", unpacked, "--output", unpacked.parent / "again")
    assert done.exit_code == 0, done.output
    tables = made.store.root / "reports" / made.label / "tables"
    compared = [path for path in tables.iterdir() if path.suffix in (".csv", ".tex")]
    assert {"main.csv", "trials.csv", "seeds.csv", "attacks.csv"} <= {path.name for path in compared}
    for path in compared:
        again = (unpacked.parent / "again" / "tables" / path.name).read_text()
        assert again == (unpacked / "reports" / made.label / "tables" / path.name).read_text(), path.name


def test_it_is_planned_and_run_again_elsewhere(made: Made, tmp_path: Path) -> None:
    """With models and rows in other folders, by both commands; as if these had been typed."""
    for name in ("models", "data"):
        shutil.copytree(made.place / name, tmp_path / name)
    folders = type_settings(Small(tmp_path / "data", tmp_path / "models").settings())
    typed = ["--from", made.file, *folders, "--storage", tmp_path / "again"]
    done = sweep(*typed, "--dry-run")
    assert done.exit_code == 0, done.output
    assert done.stdout.count(f"{made.label}: ") == 2
    assert done.stderr.count(f"{made.label}: python -m platform.sweep tofu_tiny --only method=ga --only ") == 2
    assert str(made.place / "models") not in done.stderr
    assert not (tmp_path / "again").exists()
    assert sweep(*typed).exit_code == 0
    written = json.loads((tmp_path / "again" / "sweeps" / f"{made.label}.json").read_text())
    assert written["trials"] == made.trials
    first, second = (shlex.split(command) for command in written["commands"])
    assert first[:4] == second[:4] == ["python", "-m", "platform.sweep", "tofu_tiny"]
    assert [words[-len(typed) + 2 :] for words in (first, second)] == [list(map(str, typed[2:]))] * 2


def test_typed_passwords_are_not_printed(made: Made) -> None:
    done = sweep("--from", made.file, "--dry-run", "--storage", "s3://me:wordword@bucket/x")
    assert done.stderr.count("--storage 's3://***@bucket/x'") + done.stderr.count("--storage s3://***@bucket/x") > 0
    assert "wordword" not in done.output + done.stderr


def test_it_may_be_changed(made: Made, tmp_path: Path) -> None:
    """What is typed beside --from counts; two plans are not one JSON document."""
    words = ("--from", made.file, "--dry-run", "--storage", tmp_path / "x")
    assert "--json: " in sweep(*words, "--json").stderr
    done = sweep(*words, "--set", "rectifier.gamma=0.5", "--seeds", "7")
    assert done.exit_code == 0, done.output
    assert "strategy grid, 3 trials, 0 done" in done.stdout, "alone, and GRU at gamma 0.5 with both values of tau"
    assert "strategy grid, 2 trials, 0 done" in done.stdout


def test_what_cannot_be_used_is_refused_in_a_line(made: Made, tmp_path: Path) -> None:
    def write(name: str, **changes: Any) -> Path:
        with zipfile.ZipFile(made.file) as archive:
            about = json.loads(archive.read(bundle.ABOUT)) | changes
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(bundle.ABOUT, json.dumps(about))
        return tmp_path / name

    for member in ("../../outside", "/etc/outside", "a\\..\\outside"):
        with zipfile.ZipFile(write("climbs.zip"), "a") as archive:
            archive.writestr(zipfile.ZipInfo(member), "x")
        check_refused(tmp_path / "climbs.zip", f"'{member}' leads out of its folder")
    with zipfile.ZipFile(tmp_path / "foreign.zip", "w") as archive:
        archive.writestr("photo.txt", "x")
    check_refused(tmp_path / "foreign.zip", "is no bundle; `python -m analysis.report NAME --bundle FILE.zip`")
    check_refused(write("other.zip", code="0" * 12, commit="abc", dirty=False), "was made with other code, commit abc;")
    check_refused(write("bare.zip", commands=[]), "is no bundle; ")
    content = bytearray(made.file.read_bytes())
    (tmp_path / "short.zip").write_bytes(content[: len(content) // 2])
    check_refused(tmp_path / "short.zip", "is no bundle or is damaged (")
    middle = len(content) // 2
    content[middle : middle + 9] = bytes(byte ^ 255 for byte in content[middle : middle + 9])
    (tmp_path / "flipped.zip").write_bytes(content)
    check_refused(tmp_path / "flipped.zip", "damaged")
    check_refused(tmp_path / "none.zip", "there is no file ")
    check_refused(tmp_path, "there is no file ")
    check_refused(made.file, "the bundle names its sweep; leave 'tofu_tiny' out", "tofu_tiny")


def check_refused(file: Path, message: str, *words: str) -> None:
    done = sweep("--from", file, "--dry-run", *words)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert done.stderr.startswith("error: --from: ")
    assert message in done.stderr


def test_what_no_bundle_is_made_of_is_refused(made: Made, tmp_path: Path) -> None:
    file = tmp_path / "x.zip"
    for words in (["tofu_phi"], ["--output", tmp_path / "y"], ["--source", "paper"], ["--show-rows"]):
        done = invoke(report.main, "tofu_tiny", *words, "--storage", made.store.root, "--bundle", file)
        assert (done.exit_code, "--bundle: for the report of one sweep" in done.stderr) == (2, True), done.output
    done = invoke(report.main, "tofu_tiny", "--storage", made.store.root, "--bundle", made.place)
    assert (done.exit_code, "--bundle: cannot write to" in done.stderr) == (2, True), done.output
    done = invoke(report.main, "tofu_tiny", "--storage", tmp_path / "s", "--bundle", tmp_path / "new" / "x.zip")
    assert (done.exit_code, "there is no such folder" in done.stderr) == (2, True), done.output
    assert list(tmp_path.iterdir()) == []
