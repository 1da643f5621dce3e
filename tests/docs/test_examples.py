"""The rows of the demonstration: facts with other ways to ask, each once, and none to forget and to keep."""

from __future__ import annotations

from pathlib import Path

from trainables.benchmarks.own import row_files
from trainables.benchmarks.own.facts import names_fact

COUNTS = {"forget": 60, "retain": 15, "eval": 45}


def test_each_row_of_the_demonstration_has_a_fact_and_further_ways_to_ask(root: Path) -> None:
    rows = {part: row_files.read_row_file(part, str(root / "examples" / "facts" / f"{part}.jsonl")) for part in COUNTS}
    assert {part: len(found) for part, found in rows.items()} == COUNTS
    assert {row.set for row in rows["eval"]} == {"retain", "other"}
    every = [row for found in rows.values() for row in found]
    asked = [question or "" for row in every for question in (row.question, *row.paraphrases)]
    assert len(set(asked)) == len(asked)
    for row in every:
        assert row.fact, row.question
        assert row.paraphrases, row.question
        assert names_fact(row.answer, row.fact), row.question
        assert not any(names_fact(text or "", row.fact) for text in (row.question, *row.paraphrases)), row.question
