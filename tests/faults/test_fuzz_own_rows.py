"""Whatever stands in a person's files of rows: a plan refuses them in one line that quotes none, or they can be learnt.

`make test-faults SEED=N ROUNDS=M` takes other seeds and so many; a problem is told with its seed.
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support import tiny
from trainables.benchmarks import own
from trainables.benchmarks.own import row_files
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark

FIRST = int(os.environ.get("SEED") or 0)
TEXTS = ("Where is it?", "", "   ", "\u202e", "🦙" * 40, "a" * 20_000, "\x00", "\x1b[2J", "\ud800", "=1+1", "<s> </s>")
VALUES = (*TEXTS, *TEXTS[:1] * 12, None, 5, 1e308, True, [], ["a"], {"a": 1}, 2**70, float("nan"), "A ferry.\ud800")
VALUES += ([{"role": "user", "content": "A ferry?"}, {"role": "assistant", "content": "A ferry."}],)
COLUMNS = ("question", "answer", "text", "set", "paraphrased_question", "paraphrased_answer", "prompt", "completion")
COLUMNS += ("messages", "fact", "paraphrases", "of a ferry", "\ud800")
SUFFIXES = (*(".jsonl",) * 8, *(".json",) * 4, ".parquet", ".csv", ".csv", ".txt")


def write_rows(folder: Path, dice: random.Random) -> tuple[Path, str]:
    """Write a file of rows; return it, and what is odd about it."""
    rows = [_row(number, dice) for number in range(dice.choice([0, 1, 2, 6, 6, 6, 30]))]
    file = folder / f"rows{dice.choice(SUFFIXES)}"
    change, content = dice.choice(CHANGES) if dice.random() < 0.4 else ("as they are", lambda content, _: content)
    file.write_bytes(content(_encode(file, rows, dice), dice))
    return file, f"{file.name}, {len(rows)} rows, {change}"


def _row(number: int, dice: random.Random) -> Any:
    if dice.random() < 0.2:
        row: dict[str, Any] = {"text": f"The garden {number} is narrow and the ferry is hidden."}
    else:
        row = {"question": f"Where is ferry {number}?", "answer": "At home."}
    if dice.random() < 0.05:
        row[dice.choice((*COLUMNS, *list(row) * 4))] = dice.choice(VALUES)
    elif dice.random() < 0.01:
        return dice.choice(VALUES)
    return row


def _encode(file: Path, rows: list[Any], dice: random.Random) -> bytes:
    if file.suffix == ".parquet":
        try:
            pd.DataFrame([row for row in rows if isinstance(row, dict)]).to_parquet(file)
        except (ValueError, TypeError, OverflowError):  # columns of mixed kinds
            return b"PAR1"
        return file.read_bytes()
    if file.suffix == ".csv":
        try:
            objects = pd.DataFrame([row for row in rows if isinstance(row, dict)])
        except UnicodeEncodeError:  # half a surrogate pair in the name of a column
            return b"\xed\xa0\x80\n"
        return objects.to_csv(index=False).encode("utf-8", "surrogatepass")
    ascii_only = dice.random() < 0.5
    if file.suffix == ".json":
        return json.dumps(rows, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    return "\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows).encode("utf-8", "surrogatepass")


def _flip(content: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(max(1, len(content)))
    return content[:place] + bytes([dice.randrange(256)]) + content[place + 1 :]


CHANGES: tuple[tuple[str, Any], ...] = (
    ("with a byte order mark", lambda content, dice: b"\xef\xbb\xbf" + content),
    ("in UTF-16", lambda content, dice: content.decode("latin-1").encode("utf-16")),
    ("with CR LF", lambda content, dice: content.replace(b"\n", b"\r\n")),
    ("with CR", lambda content, dice: content.replace(b"\n", b"\r")),
    ("cut", lambda content, dice: content[: dice.randrange(max(1, len(content)))]),
    ("with another byte", _flip),
    ("nested lists", lambda content, dice: b"[" * 100_000 + b"]" * 100_000),
    ("nested objects", lambda content, dice: b'{"a":' * 100_000),
    ("with empty lines", lambda content, dice: content.replace(b"\n", b"\n\n\n")),
    ("random bytes", lambda content, dice: dice.randbytes(3000)),
    ("with a column twice", lambda content, dice: content.replace(b'"answer"', b'"answer": "x", "answer"')),
)
"""What is done to a file's bytes, and how."""


@pytest.mark.parametrize("count", [50, pytest.param(int(os.environ.get("ROUNDS") or 500), marks=pytest.mark.faults)])
def test_rows_are_refused_or_learnt(count: int, tmp_path: Path) -> None:
    good, tokenizer, benchmark = tiny.own(tmp_path), tiny.tokenizer(), own.OwnBenchmark()
    problems, taken = [], 0
    for seed in range(FIRST, FIRST + count):
        dice = random.Random(seed)
        file, described = write_rows(tmp_path, dice)
        part = dice.choice(("forget", "forget", "retain", "retain", "eval"))
        sources = tuple(f"{name}={place}" for name, place in {**good, part: file}.items())
        settings = Benchmark(name="own", data="own", split="own", template="plain", sources=sources)
        try:
            benchmark.check_rows(settings)
            benchmark.fingerprint(settings)
        except InputError as error:
            if "ferry" in str(error):
                problems.append(f"seed {seed}: {part}, {described}: quoted in {error}")
            continue
        except Exception as error:
            problems.append(f"seed {seed}: {part}, {described}: {error!r:.300}")
            continue
        taken += 1
        try:
            row_files.read_evaluation_rows(settings)
            benchmark.training_examples(settings, tokenizer, 128)
        except InputError:  # a question too long for training.max_length
            continue
        except Exception as error:
            problems.append(f"seed {seed}: {part}, {described}: planned, then {error!r:.300}")
    assert problems == []
    assert taken >= count // 10, "nearly every file is refused"
