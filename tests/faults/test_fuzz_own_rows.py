"""Whatever stands in a person's files of rows: they are refused in one line when they are planned, or can be learnt.

`make test-faults SEED=N ROUNDS=M` takes other seeds and so many; a problem is told with its seed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support import own_files, tiny
from trainables.benchmarks import own
from trainables.benchmarks.own import row_files
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark

FIRST = int(os.environ.get("SEED") or 0)


@pytest.mark.parametrize("count", [50, pytest.param(int(os.environ.get("ROUNDS") or 500), marks=pytest.mark.faults)])
def test_rows_are_refused_or_learnt(count: int, tmp_path: Path) -> None:
    good, tokenizer, benchmark = tiny.own(tmp_path), tiny.tokenizer(), own.OwnBenchmark()
    problems, taken = [], 0
    for seed in range(FIRST, FIRST + count):
        dice = random.Random(seed)
        file, described = own_files.write_rows(tmp_path, dice)
        part = dice.choice(("forget", "forget", "retain", "retain", "eval"))
        sources = tuple(f"{name}={place}" for name, place in {**good, part: file}.items())
        settings = Benchmark(name="own", data="own", split="own", template="plain", sources=sources)
        try:
            benchmark.check_rows(settings)
            benchmark.fingerprint(settings)
        except InputError:
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
    assert taken > count / 10, "nearly every file is refused"
