"""No message about rows quotes them: a marker in a row's texts is in no error, whatever is wrong with the row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from tests.support import tiny
from tests.support.cases import Cases
from tests.support.own_rows import on
from tests.support.starts import invoke
from trainables import evaluate
from trainables.benchmarks.own import row_files
from trainables.common.errors import InputError
from trainables.data import idk_answers, raw_rows, text_blocks

MARKER = "Zanzibar the ferry"
GOOD = {"question": f"Where is {MARKER}?", "answer": f"In {MARKER}."}
TEXTS = st.sampled_from([MARKER, f" {MARKER}\ud800", f"\x00{MARKER}"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just("") | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS | st.sampled_from(["role", "content"]), inner),
    max_leaves=4,
)
COLUMNS = st.sampled_from([*row_files.COLUMNS, "prompt", "completion", "messages", "set", "extra", MARKER])
ROWS = VALUES | st.dictionaries(COLUMNS, VALUES, max_size=5)


def refusals(actions: Any) -> list[str]:
    found = []
    for action in actions:
        try:
            action()
        except InputError as error:
            found.append(str(error))
    return found


@given(rows=st.lists(ROWS, min_size=1, max_size=3), cut=st.integers(0, 60) | st.none())
def test_rows_of_all_kinds(tmp_path_factory: pytest.TempPathFactory, rows: list[Any], cut: int | None) -> None:
    """Whole files, and files that end in the middle of a row."""
    folder = tmp_path_factory.mktemp("rows")
    text = "\n".join(json.dumps(row) for row in rows)
    (folder / "rows.jsonl").write_text(text[:cut])
    (folder / "list.json").write_text(json.dumps(rows)[:cut])
    columns = ("question", "answer")
    said = refusals(
        [
            *(
                lambda part=part, name=name: row_files.read_row_file(part, str(folder / name))
                for part in row_files.FILES
                for name in ("rows.jsonl", "list.json")
            ),
            lambda: raw_rows.load_rows(str(folder), "rows", columns),
            lambda: raw_rows.load_rows(str(folder), "list", columns),
        ]
    )
    assert not [message for message in said if "Zanzibar" in message]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", f'"{MARKER}","{MARKER}"\n"{MARKER} again","{MARKER}"\n'),  # no line of names
        ("a.csv", f'question,answer\n"{MARKER}" is,{MARKER}\n'),
        ("a.csv", f"question,answer\n{MARKER}\n"),
        ("a.csv", f'question,answer\n"{MARKER}'),
        ("a.jsonl", f'{{"question": "{MARKER}", "answer": {MARKER}}}'),
        ("a.jsonl", f"{MARKER}\n"),
        ("a.jsonl", f'{{"question": "{MARKER}\n'),
        ("a.json", f'[{{"question": "{MARKER}"'),
        ("a.json", f'["{MARKER}"]'),
        ("a.parquet", MARKER),
    ],
)
def test_files_of_all_kinds(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    said = refusals([lambda: row_files.read_row_file("forget", str(tmp_path / name))])
    assert len(said) == 1
    assert "Zanzibar" not in said[0]


def test_other_messages_of_rows(tmp_path: Path) -> None:
    tokenizer, idk = tiny.tokenizer(), tmp_path / "idk.jsonl"
    idk.write_text(f'No idea.\n{{"text": "{MARKER}"}}\n')
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    single = text_blocks.TextRows(tokenizer, ["Q"], 9)
    (first, second) = refusals([lambda: idk_answers.read_answers(str(idk)), lambda: single[0]])
    assert first.endswith("not as JSON (line 2)")
    assert second == "benchmark.data: text 1 has a single token: nothing can be predicted of it"


@pytest.mark.data
def test_a_row_longer_than_the_model_is_not_quoted(cases: Cases, tmp_path: Path) -> None:
    """Whatever the evaluation says of it: with a model of 1024 positions."""
    given = [word for part, file in cases.sources("forget_long").items() for word in ("--source", f"{part}={file}")]
    words = ("--benchmark", "own", "--model", cases.models / "gpt2_1024", *given, "--limit", 4)
    done = invoke(evaluate.main, *words, "--output", tmp_path / "found.json")
    assert "Karachi" not in done.stdout + done.stderr + str(done.exception)


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
        row_files.check_files(benchmark)
    every = write(tmp_path, forget=FORGET[:1], retain=[OTHER, same])
    with pytest.raises(InputError, match="every row of the forget file is in the retain file"):
        row_files.check_files(every)


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
