"""What a result says that it was made with: the code that its process began with, whatever git knows of it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainables.common import provenance
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.workers import ray_processes


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with one committed module, in the place of this one."""
    root = tmp_path / "checkout"
    write(root, "training/loss.py", "SIGN = 1\n")
    author = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.com"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "Begin"]):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    monkeypatch.setattr(provenance, "CODE_ROOT", root)
    forget()
    yield root
    forget()


def write(root: Path, module: str, text: str = "") -> Path:
    path = root / "trainables" / module
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def forget() -> None:
    """As a new process."""
    provenance.read_git_state.cache_clear()
    provenance._codes.cache_clear()


def hash_anew(*names: str) -> str:
    forget()
    return provenance.hash_result_code(*names)


def test_worker_stamps_the_code_that_it_began_with(checkout: Path, store: Storage) -> None:
    before = hash_anew()
    forget()
    trial = Trial(method="ga", benchmark=Benchmark(data="data"), target=Model(path="models/full"))
    ray_processes.OneRankTrialActor({"trial": trial.model_dump_json(), "storage": str(store.root)})
    write(checkout, "training/loss.py", "SIGN = -1\n")
    made = provenance.collect_provenance()
    assert (made["code"], made["dirty"]) == (before, False)
    forget()
    made = provenance.collect_provenance()
    assert made["code"] != before
    assert made["dirty"]


def test_only_modules_that_make_numbers_are_code(checkout: Path) -> None:
    """Whatever git knows of them; which file holds what counts, too."""
    before = hash_anew()
    code = ("data/more.py", "trial/export/more.py", "common/tokenized_row.py")
    for module in (*code, "common/cli.py", "run.py", "methods/notes.txt"):
        path = write(checkout, module)
        assert (hash_anew() != before) == (module in code), module
        assert provenance.read_git_state()[1] == (path.suffix == ".py"), "a new module is uncommitted, whatever it does"
        path.unlink()
    (checkout / ".git").rename(checkout / "elsewhere")
    assert hash_anew() == before
    assert provenance.read_git_state() == (None, False)
    (checkout / "trainables/training/loss.py").rename(checkout / "trainables/training/other.py")
    assert hash_anew() != before


def test_a_file_in_custom_is_code_of_its_own_trials_alone(checkout: Path) -> None:
    """What several files there share is, too; the folder's own module is everybody's code."""

    def codes() -> list[str]:
        return [hash_anew("npo", "gru"), hash_anew("known", "none"), hash_anew("npo", "agree")]

    write(checkout, "methods/custom/__init__.py")
    before = codes()
    assert len(set(before)) == 1, "nothing is added yet"
    write(checkout, "methods/custom/known.py", "SIGN = 1\n")
    write(checkout, "methods/custom/agree.py")
    plain, objective, rectifier = codes()
    assert plain == before[0] == hash_anew()
    assert objective == rectifier != plain
    write(checkout, "methods/custom/_both.py")
    assert codes()[0] == plain
    assert codes()[1] != objective
    write(checkout, "methods/custom/__init__.py", "FOLDER = 1\n")
    assert codes()[0] != plain
