"""No message about rows quotes them: a marker in a row's texts is in no error (tests/faults tries more)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny
from tests.support.cases import Cases
from tests.support.own_rows import on
from trainables.benchmarks.own import row_files
from trainables.common.errors import InputError

MARKER = "Zanzibar the ferry"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", f'"{MARKER}","{MARKER}"\n"{MARKER} again","{MARKER}"\n'),  # no line of names
        ("a.csv", f'question,answer\n"{MARKER}" is,{MARKER}\n'),
        ("a.csv", f'question,answer\n"{MARKER}'),
        ("a.jsonl", f'{{"question": "{MARKER}", "answer": {MARKER}}}'),
        ("a.parquet", MARKER),
    ],
)
def test_files_of_all_kinds(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as raised:
        row_files.read_row_file("forget", str(tmp_path / name))
    assert "Zanzibar" not in str(raised.value)


# Rows that contradict their set


def write(folder: Path, **sides: list[dict[str, Any]]) -> Any:
    files = {part: folder / f"{part}.jsonl" for part in sides}
    for part, rows in sides.items():
        tiny.write_rows(files[part], rows)
    return on(files)


FORGET = [
    {"question": 'Where is the "amber" – Lina\'s?', "answer": "In the café."},
    {"question": "Who is there?", "answer": "A ferry."},
]
OTHER = {"question": "Where is the lantern?", "answer": "In the garden."}


@pytest.mark.parametrize(
    "same",
    [
        {"question": "  where is the “AMBER” — Lina’s ", "answer": "in the cafe\u0301"},
        {"question": "Where is\nthe \u00abamber\u00bb \u2212 Lina\u00b4s?", "answer": "In the ｃafé!"},
        {"prompt": 'Where is the "amber" - Lina\'s?', "completion": "In the cafe\u0301\u200b."},
        {
            "messages": [
                {"role": "system", "content": "Be brief.\n\nBe kind."},
                {"role": "user", "content": FORGET[0]["question"]},
                {"role": "assistant", "content": FORGET[0]["answer"]},
            ]
        },
    ],
)
def test_forget_rows_among_retain_rows_in_other_spelling(same: dict[str, Any], tmp_path: Path) -> None:
    for forget, retain in ((FORGET, [OTHER, same]), ([same, FORGET[1]], [OTHER, FORGET[0]])):
        benchmark = write(tmp_path, forget=forget, retain=retain)
        found = row_files.describe_overlap(benchmark)
        assert found
        assert "1 of 2 forget rows are among the rows to retain" in found
        assert found.endswith("(of the forget file: row 1)")
        row_files.check_row_files(benchmark)
    every = write(tmp_path, forget=FORGET[:1], retain=[OTHER, same])
    with pytest.raises(InputError, match="every row of the forget file is in the retain file"):
        row_files.check_row_files(every)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FORGET[0], {"question": FORGET[0]["question"], "answer": "In the garden."}),
        (FORGET[0], {"question": 'Where is the "amber" Lina?', "answer": FORGET[0]["answer"]}),
        (FORGET[0], {"text": "In the café."}),
        *(({"question": "It?", "answer": a}, {"question": "It?", "answer": b}) for a, b in (("-5", "5"), ("?", "!"))),
    ],
)
def test_rows_that_only_look_alike(one: dict[str, Any], other: dict[str, Any], tmp_path: Path) -> None:
    assert row_files.describe_overlap(write(tmp_path, forget=[one], retain=[OTHER, other])) is None


def test_holdout_rows_that_a_model_may_know(tmp_path: Path) -> None:
    further = [
        {"text": "A lantern.", "set": "retain"},
        {"text": "Nobody has read this.", "set": "holdout"},
        {"question": "WHO is there", "answer": "A ferry", "set": "holdout"},
        {"question": "Where is the lantern?", "answer": "In the garden!", "set": "holdout"},
    ]
    found = row_files.describe_overlap(write(tmp_path, forget=FORGET, retain=[OTHER], eval=further))
    assert found
    assert found.startswith("eval: 2 of 3 hold-out rows are among the rows to forget or to retain")
    assert found.endswith("(of the file eval: rows 3, 4)")


@pytest.mark.data
def test_quotes_of_the_cases(cases: Cases) -> None:
    found = row_files.describe_overlap(on(cases.sources("forget_quotes", "retain_quotes")))
    assert found
    assert "12 of 12 forget rows" in found
