"""Files of rows of one's own: what they may hold, what is refused and how it is said, and what a plan is told."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from tests.support import own_rows, tiny
from tests.support.own_rows import on
from trainables.benchmarks import own
from trainables.benchmarks.own import row_files
from trainables.benchmarks.own.row import OwnRow
from trainables.common.errors import InputError

OWN = own.OwnBenchmark()

files = own_rows.files


def test_parquet_and_json_hold_the_same_rows(files: dict[str, Path], tmp_path: Path) -> None:
    raw = [json.loads(line) for line in files["forget"].read_text().splitlines()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"text": None, **raw[0]}, *raw[1:]]), tmp_path / "f.parquet")
    (tmp_path / "f.json").write_text(json.dumps(raw, indent=1))
    expected = row_files.read_row_file("forget", str(files["forget"]))
    assert [row.is_text for row in expected] == [False] * 4 + [True] * 2
    assert expected[0].paraphrase == OwnRow("In which place is the amber?", f"It is {tiny.text(0, 3)}")
    for name in ("f.parquet", "f.json"):
        assert row_files.read_row_file("forget", str(tmp_path / name)) == expected
    asked = [json.dumps(row) for row in (raw[0], *raw[4:])]  # a file that csv writes has every column in every row
    with (tmp_path / "f.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, ["question", "answer", "text", "paraphrased_question", "paraphrased_answer"])
        writer.writeheader()
        writer.writerows(map(json.loads, asked))
    assert row_files.read_row_file("forget", str(tmp_path / "f.csv")) == (expected[0], *expected[4:])


def test_a_question_in_the_shapes_of_others(tmp_path: Path) -> None:
    user, assistant = {"role": "user", "content": "Where?"}, {"role": "assistant", "content": 'In "Lagos", he said.'}
    system = {"role": "system", "content": "Be brief."}
    shapes: list[dict[str, Any]] = [
        {"question": "Where?", "answer": assistant["content"]},
        {"prompt": "Where?", "completion": assistant["content"]},
        {"messages": [user, assistant], "text": None},
        {"prompt": [user], "completion": [assistant]},
        {"messages": [system, user, assistant]},
        {"messages": [user, assistant, user, assistant]},
        {"text": "A lantern.", "prompt": "Where?", "completion": "There."},
        {"text": "A lantern.", "prompt": [user], "completion": [assistant]},
    ]
    tiny.write_rows(tmp_path / "rows.jsonl", shapes)
    found = row_files.read_row_file("forget", str(tmp_path / "rows.jsonl"))
    assert found[:4] == (OwnRow("Where?", assistant["content"]),) * 4
    said, turns = assistant["content"], (("system", "Be brief."), ("user", "Where?"))
    assert found[4] == OwnRow("Be brief.\n\nWhere?", said, turns=turns)
    several = (("user", "Where?"), ("assistant", said), ("user", "Where?"))
    assert found[5] == OwnRow(f"Where?\n\n{said}\n\nWhere?", said, turns=several)
    assert found[6:] == (OwnRow(None, "A lantern."),) * 2


@pytest.mark.parametrize(
    ("part", "bad", "words"),
    [
        ("forget", {"prompt": "a"}, r"^forget: row 2 of .*rows\.jsonl has neither .* nor 'text'; its columns: prompt$"),
        ("retain", {"question": "a", "answer": " "}, r"row 2 .* has an empty 'answer'; its columns: question, answer"),
        ("retain", {"text": "a", "answer": "b"}, r"has 'text' as well as 'question' or 'answer'"),
        ("retain", {"text": 5}, r"retain: row 2 of .* but a value of type int$"),
        ("retain", {"text": "\ud800"}, r"has half of a character in 'text': surrogates not allowed$"),
        ("retain", {"messages": [{"role": "user", "content": "a"}] * 2}, r"has other 'messages' than a user's and"),
        ("retain", {"messages": "a"}, r"than a user's and the assistant's in turn, the last one the answer"),
        ("retain", "The lantern hangs", r"is no JSON object but of type str$"),
        ("eval", {"text": "a"}, r"eval: row 1 of .* has no such 'set'; .*\(and 1 more rows like it\)"),
        ("eval", {"text": "a", "set": "hold-out"}, r"known: paraphrase, retain, other, holdout"),
        ("retain", {"question": "a", "answer": "b", "fact": ["b", 5]}, r"no text as 'fact' but a value of type int"),
        ("retain", {"question": "a", "answer": "b", "paraphrases": ["?"]}, r"a text without a word in 'paraphrases'"),
        ("retain", {"text": "a", "fact": "b"}, r"has 'text' with 'fact' or 'paraphrases', which are of a question"),
    ],
)
def test_a_bad_row_is_told(part: str, bad: Any, words: str, tmp_path: Path) -> None:
    tiny.write_rows(tmp_path / "rows.jsonl", [{"text": "x"}, bad])
    with pytest.raises(InputError, match=words):
        row_files.read_row_file(part, str(tmp_path / "rows.jsonl"))


def test_all_files_are_told_at_once(files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "torn.parquet").write_text("not Parquet")
    (tmp_path / "rows.csv").write_text("question,answer\nWho?,Ada\na,b,c\n")
    wrong = {"forget": tmp_path / "empty.jsonl", "retain": tmp_path / "torn.parquet", "eval": tmp_path / "rows.csv"}
    with pytest.raises(InputError) as told:
        OWN.check_rows(on(wrong))
    for words in ("has no rows", "cannot be read as parquet", "line 3 has another number of columns than the first"):
        assert words in str(told.value)
    (tmp_path / "torn.jsonl").write_text('{"text": "a"}\n{"text": "b"\n')
    for place, words in (
        ("/nowhere/x", "is no file; give one"),
        (tmp_path, "is a folder"),
        ("torn.jsonl", "line 2 is"),
    ):
        with pytest.raises(InputError, match=words):
            OWN.check_rows(on(files | {"eval": tmp_path / place}))


def test_the_fingerprint_follows_what_the_files_hold(files: dict[str, Path], tmp_path: Path) -> None:
    known = OWN.fingerprint(on(files))
    assert OWN.fingerprint(on(tiny.own(tmp_path / "copy"))) == known
    assert OWN.fingerprint(on({**files, "forget": files["retain"], "retain": files["forget"]})) != known
    for part in files:
        changed = tiny.own(tmp_path / part)
        changed[part].write_text(changed[part].read_text().replace("a", "o", 1))
        assert OWN.fingerprint(on(changed)) != known


def test_what_a_plan_is_told(files: dict[str, Path], tmp_path: Path) -> None:
    """The forget file: 4 questions, and texts of 127 and 24 bytes, at four bytes a token in blocks of 16."""
    raw = [json.loads(line) for line in files["forget"].read_text().splitlines()]
    texts = [-(-len(r["text"]) // 4) for r in raw[4:]]
    found = OWN.training_size(on(files), 16)
    assert found.points == 4 + sum(-(-size // 16) for size in texts)
    assert (found.longest, found.mean) == (16, pytest.approx((4 * 16 + sum(texts)) / (found.points or 0)))
    assert OWN.count_forget_points(on(files)) is None
    tiny.write_rows(tmp_path / "asked.jsonl", raw[:4])
    assert OWN.count_forget_points(on(files | {"forget": tmp_path / "asked.jsonl"})) == 4


def test_the_fact_of_an_answer_and_other_ways_to_ask_are_a_text_or_a_list(tmp_path: Path) -> None:
    row = {"question": "a", "answer": "b", "fact": "b", "paraphrases": ["c", "d"]}
    tiny.write_rows(tmp_path / "rows.jsonl", [row, {"question": "a", "answer": "b", "fact": [], "paraphrases": None}])
    first, second = row_files.read_row_file("retain", str(tmp_path / "rows.jsonl"))
    assert (first.fact, first.paraphrases, second.fact, second.paraphrases) == (("b",), ("c", "d"), (), ())
    (tmp_path / "rows.csv").write_text("question,answer,fact,paraphrases\na,b,b,\n", encoding="utf-8")
    (written,) = row_files.read_row_file("retain", str(tmp_path / "rows.csv"))
    assert (written.fact, written.paraphrases) == (("b",), ())
