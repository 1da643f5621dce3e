"""A person's own rows: questions with answers, and texts, in JSON Lines, JSON or Parquet files.

A row has `question` and `answer`, or `text`; one file may hold both kinds. A question to forget may have
`paraphrased_question` and `paraphrased_answer`, or one of them. A row of the file `eval` says in `set` what it is for:

- `paraphrase`: another way to ask for what is forgotten;
- `retain`: utility is measured on these rows instead of the retain file's;
- `holdout`: like the forget rows, and no model was trained on it: membership inference compares with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from trainables.common import hashing
from trainables.common.errors import InputError, closest
from trainables.common.paths import expand, is_file, is_folder
from trainables.config.settings import Benchmark
from trainables.data import rows

FILES = ("forget", "retain", "eval")
REQUIRED = ("forget", "retain")
EVAL_SETS = ("paraphrase", "retain", "holdout")
COLUMNS = ("question", "answer", "text", "paraphrased_question", "paraphrased_answer")

KINDS = {str: "a text", list: "a list", dict: "an object", bool: "true or false", int: "a number", float: "a number"}


@dataclass(frozen=True)
class Row:
    """`question` None: `answer` is a text. `set`: of rows of the file eval."""

    question: str | None
    answer: str
    paraphrase: Row | None = None
    set: str | None = None

    @property
    def is_text(self) -> bool:
        return self.question is None


def places(benchmark: Benchmark) -> dict[str, str]:
    """Part -> file of rows, or task of lm-eval -> folder or hub id."""
    return dict(source.split("=", 1) for source in benchmark.sources)


def training(benchmark: Benchmark) -> tuple[Sequence[Row], Sequence[Row]]:
    """Forget rows and retain rows."""
    at = places(benchmark)
    return load("forget", at["forget"]), load("retain", at["retain"])


def evaluated(benchmark: Benchmark) -> dict[str, list[Row]]:
    """The rows of each set: forget, paraphrase, retain, holdout; the second and the last may be empty."""
    forget, retain = training(benchmark)
    further = load("eval", places(benchmark)["eval"]) if "eval" in places(benchmark) else ()
    given = {name: [row for row in further if row.set == name] for name in EVAL_SETS}
    paraphrases = [row.paraphrase for row in forget if row.paraphrase is not None]
    return {
        "forget": list(forget),
        "paraphrase": paraphrases + given["paraphrase"],
        "retain": given["retain"] or list(retain),
        "holdout": given["holdout"],
    }


def check_files(benchmark: Benchmark) -> None:
    """Raise InputError with what is wrong in every file."""
    at, problems = places(benchmark), []
    for part in FILES:
        try:
            if part in at:
                load(part, at[part])
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError("; ".join(problems))


def fingerprint(part: str, place: str) -> str:
    """A content hash of a file."""
    return hashing.hash_files([_file(part, place)])


def load(part: str, place: str) -> Sequence[Row]:
    """All rows of a file. Raises InputError, led by the part, with the first bad row and how many others there are."""
    file = _file(part, place)
    state = file.stat()
    return _load(part, file, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=len(FILES))
def _load(part: str, file: Path, state: tuple[int, int]) -> tuple[Row, ...]:
    """Read once for the many questions of a plan; `state` tells a file that was written again."""
    found, problems = [], []
    for number, raw in enumerate(rows.load_file(file, part), 1):
        try:
            found.append(_row(part, raw))
        except InputError as error:
            problems.append(f"{part}: row {number} of {file} {error}")
    if problems:
        others = f" (and {len(problems) - 1} more rows like it)" if len(problems) > 1 else ""
        raise InputError(problems[0] + others)
    if not found:
        raise InputError(f"{part}: {file} has no rows")
    return tuple(found)


def _file(part: str, place: str) -> Path:
    file = expand(place)
    if not is_file(file):
        what = "is a folder" if is_folder(file) else "is no file"
        raise InputError(f"{part}: '{place}' {what}; give one with rows: {', '.join(rows.SUFFIXES)}")
    if file.suffix not in rows.SUFFIXES:
        raise InputError(f"{part}: '{place}' has another ending than {', '.join(rows.SUFFIXES)}")
    return file


def _row(part: str, raw: Any) -> Row:
    """Raises InputError with the words that follow `row 3 of FILE`."""
    if not isinstance(raw, dict):
        raise InputError(f"is no JSON object but {_kind(raw)}")
    held = {name: value for name in COLUMNS if (value := raw.get(name)) is not None}
    for name, value in held.items():
        if not isinstance(value, str):
            raise InputError(f"has no text as '{name}' but {_kind(value)}")
    held = {name: value for name, value in held.items() if value.strip()}
    columns = f"its columns: {', '.join(raw)}"
    if "text" in held:
        if "question" in held or "answer" in held:
            raise InputError(f"has 'text' as well as 'question' or 'answer'; {columns}")
        row = Row(None, held["text"])
    elif "question" in held and "answer" in held:
        row = Row(held["question"], held["answer"], _paraphrase(held) if part == "forget" else None)
    else:
        raise InputError(f"has neither 'text' nor 'question' and 'answer'; {columns}")
    return Row(row.question, row.answer, row.paraphrase, _set(raw)) if part == "eval" else row


def _kind(value: Any) -> str:
    """What a value is, for a message that is not to repeat a row's text."""
    return KINDS.get(type(value), "another value")


def _paraphrase(held: dict[str, str]) -> Row | None:
    question, answer = held.get("paraphrased_question"), held.get("paraphrased_answer")
    if question is None and answer is None:
        return None
    return Row(question or held["question"], answer or held["answer"])


def _set(raw: dict[str, Any]) -> str:
    name = raw.get("set")
    if name not in EVAL_SETS:
        raise InputError(f"has set={name!r}; {closest(str(name), EVAL_SETS)}")
    return str(name)
