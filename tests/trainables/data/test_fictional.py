"""The invented authors of `quickstart`: TOFU's format, TOFU's splits, and the same bytes everywhere."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.data import fictional

PLAIN = ["question", "answer"]
FILES = ("full", "forget10", "retain90", "forget10_perturbed", "retain_perturbed", "real_authors", "world_facts")
FILES += ("real_authors_perturbed", "world_facts_perturbed")
# VERSION -> sha256 of all files written with default arguments
GOLDEN = {1: "ae2ab2cdba2686388a20c97dc9824a990684da5f47192f40751d082dc4939a5e"}

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fictional")
    fictional.write_fictional_authors(path)
    return path


def load(folder: Path, name: str) -> Rows:
    return [json.loads(line) for line in (folder / f"{name}.json").read_text(encoding="utf-8").splitlines()]


def surnames(folder: Path, name: str) -> set[str]:
    """Surnames in the questions and answers of a file, without the canon's (they occur as examples of others)."""
    canon = {
        word for row in load(folder, "real_authors") for word in re.findall(r"\w+", row["question"] + row["answer"])
    }
    text = " ".join(row["question"] + " " + row["answer"] for row in load(folder, name))
    return (set(re.findall(r"\w+", text)) & set(fictional.SURNAMES)) - canon


def shapes(folder: Path, name: str) -> set[Any]:
    """Columns, types and lengths of lists of all rows of a file."""
    return {
        tuple((column, type(value), len(value) if isinstance(value, list) else 1) for column, value in row.items())
        for row in load(folder, name)
    }


@pytest.mark.data
def test_shape_is_that_of_the_real_files(folder: Path, tofu_data: Path) -> None:
    assert {path.stem for path in folder.glob("*.json")} == set(FILES)
    assert {name: shapes(folder, name) for name in FILES} == {name: shapes(tofu_data, name) for name in FILES}


@pytest.mark.data
def test_nobody_bears_the_name_of_a_real_author(tofu_data: Path) -> None:
    real = {word for row in load(tofu_data, "real_authors") for word in re.findall(r"\w+", " ".join(row.values()))}
    assert real.isdisjoint({*fictional.FIRST_NAMES, *fictional.SURNAMES})


def test_forget_and_retain_partition_full(folder: Path) -> None:
    full, forget, retain = (load(folder, name) for name in ("full", "forget10", "retain90"))
    assert retain + forget == full
    assert len(forget) * 10 == len(full)
    assert surnames(folder, "forget10").isdisjoint(surnames(folder, "retain90"))
    assert 10 * len(surnames(folder, "forget10")) == len(surnames(folder, "full"))
    for name, among in (("forget10_perturbed", forget), ("retain_perturbed", retain)):
        plain = [{column: row[column] for column in PLAIN} for row in load(folder, name)]
        assert plain == among[: len(plain)]
        assert 60 <= len(plain) <= 80


def test_version_goes_with_the_text_and_a_seed_changes_every_file(folder: Path, tmp_path: Path) -> None:
    contents = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    digest = hashlib.sha256(b"".join(contents.values())).hexdigest()
    assert {fictional.VERSION: digest} == GOLDEN, "the text changed: raise VERSION and write the new hash here"
    fictional.write_fictional_authors(tmp_path, seed=1)
    assert all((tmp_path / f"{name}.json").read_bytes() != contents[f"{name}.json"] for name in FILES)


@settings(max_examples=6)
@given(
    authors=st.integers(1, fictional.MAX_AUTHORS // 10).map(lambda tens: 10 * tens),
    questions=st.integers(1, fictional.MAX_QUESTIONS_PER_AUTHOR),
    seed=st.integers(0, 2**32),
)
def test_questions_and_names_are_unique(
    tmp_path_factory: pytest.TempPathFactory, authors: int, questions: int, seed: int
) -> None:
    path = tmp_path_factory.mktemp("sizes")
    fictional.write_fictional_authors(path, authors=authors, questions=questions, seed=seed)
    asked = [row["question"] for name in ("full", "real_authors", "world_facts") for row in load(path, name)]
    assert len(load(path, "full")) == authors * questions
    assert len(set(asked)) == len(asked)
    assert len(surnames(path, "full")) == authors
