"""Files of rows of one's own: what they may hold, what is refused and how it is said, and what a plan is told."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from tests.support import own_rows, tiny
from tests.support.own_rows import OWN, on
from trainables.benchmarks.own import row_files
from trainables.benchmarks.own.facts import OwnRow
from trainables.common.errors import InputError

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
        ("retain", {"text": "\ud800"}, r"has half of a character in 'text': surrogates not allowed$"),
        ("retain", {"messages": [{"role": "user", "content": "a"}] * 2}, r"has other 'messages' than a user's and"),
        ("retain", "The lantern hangs", r"is no JSON object but of type str$"),
        ("eval", {"text": "a"}, r"eval: row 1 of .* has no such 'set'; .*\(and 1 more rows like it\)"),
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
    with pytest.raises(InputError, match="is a folder"):
        OWN.check_rows(on(files | {"eval": tmp_path}))


def test_the_fingerprint_follows_what_the_files_hold(files: dict[str, Path], tmp_path: Path) -> None:
    known = OWN.fingerprint(on(files))
    assert OWN.fingerprint(on(tiny.own(tmp_path / "copy"))) == known
    assert OWN.fingerprint(on({**files, "forget": files["retain"], "retain": files["forget"]})) != known
    for part in files:
        changed = tiny.own(tmp_path / part)
        changed[part].write_text(changed[part].read_text().replace("a", "o", 1))
        assert OWN.fingerprint(on(changed)) != known


def test_what_a_plan_is_told(files: dict[str, Path], tmp_path: Path) -> None:
    """4 questions and two texts to forget, 5 and one to retain, at four bytes a token in blocks of 16."""
    raw, kept = ([json.loads(line) for line in files[part].read_text().splitlines()] for part in ("forget", "retain"))
    texts, more = ([-(-len(row["text"]) // 4) for row in rows if "text" in row] for rows in (raw, kept))
    found, points = OWN.estimate_training_size(on(files), 16), 4 + sum(-(-size // 16) for size in texts)
    mean = (9 * 16 + sum([*texts, *more])) / (points + 5 + sum(-(-size // 16) for size in more))
    assert (found.points, found.longest, found.exact, found.mean) == (points, 16, False, pytest.approx(mean))
    tiny.write_rows(tmp_path / "asked.jsonl", raw[:4])
    found = OWN.estimate_training_size(on(files | {"forget": tmp_path / "asked.jsonl"}), 16)
    assert (found.points, found.exact) == (4, True)


def test_the_fact_of_an_answer_and_other_ways_to_ask_are_a_text_or_a_list(tmp_path: Path) -> None:
    row = {"question": "a", "answer": "b", "fact": "b", "paraphrases": ["c", "d"]}
    tiny.write_rows(tmp_path / "rows.jsonl", [row, {"question": "a", "answer": "b", "fact": [], "paraphrases": None}])
    first, second = row_files.read_row_file("retain", str(tmp_path / "rows.jsonl"))
    assert (first.fact, first.paraphrases, second.fact, second.paraphrases) == (("b",), ("c", "d"), (), ())
    (tmp_path / "rows.csv").write_text("question,answer,fact,paraphrases\na,b,b,\n", encoding="utf-8")
    (written,) = row_files.read_row_file("retain", str(tmp_path / "rows.csv"))
    assert (written.fact, written.paraphrases) == (("b",), ())


# No message about rows quotes them (tests/faults tries more)

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


def write_sides(folder: Path, **sides: list[dict[str, Any]]) -> Any:
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
        benchmark = write_sides(tmp_path, forget=forget, retain=retain)
        found = row_files.describe_overlap(benchmark)
        assert found
        assert "1 of 2 forget rows are among the rows to retain" in found
        assert found.endswith("(of the forget file: row 1)")
        row_files.check_row_files(benchmark)
    every = write_sides(tmp_path, forget=FORGET[:1], retain=[OTHER, same])
    with pytest.raises(InputError, match="every row of the forget file is in the retain file"):
        row_files.check_row_files(every)


@pytest.mark.parametrize(("typed", "meant"), [("facts", "fact"), ("paraphrase", "paraphrases")])
def test_a_mistyped_column_is_named(typed: str, meant: str, tmp_path: Path) -> None:
    rows = [{"question": "Who?", "answer": "A ferry.", typed: "A ferry."}]
    with pytest.raises(InputError, match=f"forget: nothing reads the column '{typed}' of .*; did you mean '{meant}'"):
        row_files.check_row_files(write_sides(tmp_path, forget=rows, retain=[OTHER]))


def test_retain_rows_that_tell_a_forget_rows_fact_in_other_words(tmp_path: Path) -> None:
    told = {"question": FORGET[0]["question"], "answer": "Lina says that the café has it."}
    benchmark = write_sides(tmp_path, forget=FORGET, retain=[OTHER, told])
    assert "1 of 2 forget rows are among the rows to retain" in (row_files.describe_overlap(benchmark) or "")
    row_files.check_row_files(benchmark)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FORGET[0], {"question": FORGET[0]["question"], "answer": "In the garden."}),
        (FORGET[0], {"question": 'Where is the "amber" Lina?', "answer": FORGET[0]["answer"]}),
        (FORGET[0], {"text": "In the café."}),
        ({"question": "It?", "answer": "?"}, {"question": "It?", "answer": "!"}),
    ],
)
def test_rows_that_only_look_alike(one: dict[str, Any], other: dict[str, Any], tmp_path: Path) -> None:
    assert row_files.describe_overlap(write_sides(tmp_path, forget=[one], retain=[OTHER, other])) is None


def test_holdout_rows_that_a_model_may_know(tmp_path: Path) -> None:
    further = [
        {"text": "A lantern.", "set": "retain"},
        {"text": "Nobody has read this.", "set": "holdout"},
        {"question": "WHO is there", "answer": "A ferry", "set": "holdout"},
        {"question": "Where is the lantern?", "answer": "In the garden!", "set": "holdout"},
    ]
    found = row_files.describe_overlap(write_sides(tmp_path, forget=FORGET, retain=[OTHER], eval=further))
    assert found
    assert found.startswith("eval: 2 of 3 hold-out rows are among the rows to forget or to retain")
    assert found.endswith("(of the file eval: rows 3, 4)")
