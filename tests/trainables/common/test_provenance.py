"""What a result says that it was made with: the code that its process began with, whatever git knows of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainables.common import provenance
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import Trial
from trainables.storage.base import Storage
from trainables.workers import trial_actor


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with one committed module, in the place of this one."""
    root = tmp_path / "checkout"
    (root / "trainables").mkdir(parents=True)
    (root / "trainables" / "loss.py").write_text("SIGN = 1\n")
    author = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.com"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "Begin"]):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    monkeypatch.setattr(provenance, "ROOT", root)
    forget()
    yield root
    forget()


def forget() -> None:
    """As a new process."""
    provenance.commit.cache_clear()
    provenance._codes.cache_clear()


def test_worker_stamps_the_code_that_it_began_with(checkout: Path, store: Storage) -> None:
    before = provenance.code()
    forget()
    trial = Trial(method="ga", benchmark=Benchmark(data="data"), target=Model(path="models/full"))
    trial_actor.TrialActor({"trial": trial.model_dump_json(), "storage": str(store.root)})
    (checkout / "trainables" / "loss.py").write_text("SIGN = -1\n")
    made = provenance.stamp()
    assert (made["code"], made["dirty"]) == (before, False)
    forget()
    made = provenance.stamp()
    assert made["code"] != before
    assert made["dirty"]


def test_new_module_is_other_code_and_uncommitted(checkout: Path) -> None:
    before = provenance.code()
    (checkout / "trainables" / "sub").mkdir()
    (checkout / "trainables" / "sub" / "more.py").write_text("")
    (checkout / "notes.txt").write_text("no module")
    forget()
    assert provenance.code() != before
    assert provenance.commit()[1]


def test_code_is_known_outside_git(checkout: Path) -> None:
    before = provenance.code()
    (checkout / ".git").rename(checkout / "elsewhere")
    (checkout / "README.md").write_text("no module")
    forget()
    assert provenance.commit() == (None, False)
    assert provenance.code() == before


def test_moved_text_is_other_code(checkout: Path) -> None:
    """The hash knows which file holds what."""
    before = provenance.code()
    (checkout / "trainables" / "loss.py").rename(checkout / "trainables" / "other.py")
    forget()
    assert provenance.code() != before


def test_an_added_objective_is_code_of_its_own_trials_alone(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What several objectives share is, too; the folder's own module and all others are everybody's code."""
    folder = checkout / "trainables" / "methods" / "custom"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    monkeypatch.setattr(provenance.custom, "NAMES", ("known", "other"))

    def codes() -> dict[str | None, str]:
        forget()
        return {method: provenance.code(method) for method in (None, "npo", "known", "other")}

    before = codes()
    assert len(set(before.values())) == 1, "nothing is added yet"
    (folder / "known.py").write_text("SIGN = 1\n")
    after = codes()
    assert after[None] == after["npo"] == before["npo"]
    assert after["known"] == after["other"] != before["known"]
    (folder / "_both.py").write_text("")
    assert codes()["npo"] == before["npo"]
    assert codes()["known"] != after["known"]
    (folder / "__init__.py").write_text("FOLDER = 1\n")
    assert codes()["npo"] != before["npo"]
    assert provenance.stamp("known")["code"] == provenance.code("known") != provenance.stamp("npo")["code"]
