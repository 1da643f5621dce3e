"""The rows of the demonstration: facts with other ways to ask, each once, and none to forget and to keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainables.benchmarks.own import row_files
from trainables.benchmarks.own.facts import names_fact

COUNTS = {"forget": 60, "retain": 15, "eval": 45}


@pytest.mark.parametrize("part", COUNTS)
def test_each_row_of_the_demonstration_has_a_fact_and_further_ways_to_ask(part: str, root: Path) -> None:
    rows = row_files.read_row_file(part, str(root / "examples" / "facts" / f"{part}.jsonl"))
    assert len(rows) == COUNTS[part]
    assert {row.set for row in rows} == ({"retain", "other"} if part == "eval" else {None})
    asked = [question for row in rows for question in (row.question, *row.paraphrases)]
    assert len(set(asked)) == len(asked)
    for row in rows:
        assert row.fact, row.question
        assert row.paraphrases, row.question
        assert names_fact(row.answer, row.fact), row.question
        assert not any(names_fact(question or "", row.fact) for question in (row.question, *row.paraphrases)), (
            row.question
        )


def test_no_question_of_the_demonstration_is_to_forget_and_to_keep(root: Path) -> None:
    folder = root / "examples" / "facts"
    parts = [row_files.read_row_file(part, str(folder / f"{part}.jsonl")) for part in COUNTS]
    questions = [row.question for rows in parts for row in rows]
    assert len(set(questions)) == len(questions)
