"""The file of answers that `--set objective.idk=FILE` names: what it may hold, and whose ids know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import own_rows
from tests.support.small_sweep import Small, plan_named
from trainables.common.errors import InputError
from trainables.data import idk_answers
from trainables.storage.folder_storage import Storage

METHODS = "method=ga,idk_dpo,idk_nll"
files = own_rows.files


def ids(small: Small, store: Storage, *settings: str) -> dict[str, str]:
    """The id of each method's trial without a rectifier."""
    plan = small.plan(store, METHODS, "rectifier.name=none", "benchmark.split=forget05", *settings)
    return {trial.method: trial.id() for trial in plan.trials}


def test_content_of_the_file_is_in_the_ids_of_those_that_read_it(small: Small, store: Storage, tmp_path: Path) -> None:
    one, other, same = (tmp_path / name for name in ("one.txt", "other.txt", "same.jsonl"))
    one.write_text("No idea.\nI cannot say.\n")
    other.write_text("No idea.\n")
    same.write_text("# from elsewhere\n\n  No idea.\r\nI cannot say.")
    plain = ids(small, store)
    found = [ids(small, store, f"objective.idk={path}") for path in (one, other, same)]
    assert {each["ga"] for each in (plain, *found)} == {plain["ga"]}
    for method in ("idk_dpo", "idk_nll"):
        assert found[0][method] == found[2][method]
        assert len({plain[method], found[0][method], found[1][method]}) == 3
    default = ids(small, store, f"objective.idk={idk_answers.DEFAULT_ANSWERS_FILE}")
    assert default == plain
    hashes = [small.plan(store, METHODS, f"objective.idk={path}").hash for path in (one, other, same)]
    assert hashes[0] == hashes[2] != hashes[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"objective.idk: cannot read '.*idk.txt': No such file or directory; give a text file"),
        (b"\xff\xfe\x00", "it is no text in UTF-8"),
        (b"# nothing\n\n", "has no answer; write one a line"),
        (b'{"text": "No idea."}', "write each answer as plain text, not as JSON"),
    ],
)
def test_files_that_cannot_be_used(
    small: Small, store: Storage, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "idk.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        small.plan(store, "method=idk_nll", f"objective.idk={path}")


def test_texts_have_no_question_to_answer_otherwise(files: Any, store: Storage, tmp_path: Path) -> None:
    from tests.support import tiny

    settings = [*own_rows.settings(tiny.write_model(tmp_path / "model", layers=1), files), "rectifier.name=none"]
    assert plan_named("own", store, *settings, "method=ceu").trials
    with pytest.raises(InputError, match="forget: another answer needs a question, and row 5 is a text"):
        plan_named("own", store, *settings, "method=idk_dpo")
