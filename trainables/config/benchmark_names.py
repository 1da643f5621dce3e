"""The names of the benchmarks: those of the files and folders of trainables/benchmarks that define one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from trainables.common.errors import suggest_name

BENCHMARKS_FOLDER = Path(__file__).parents[1] / "benchmarks"
CLASS_PATTERN = re.compile(r"^class \w+\((?:\w+\.)*\w*Benchmark(?:Base)?\):", re.MULTILINE)
"""A subclass of BenchmarkBase, or of another benchmark, whose class is called ...Benchmark."""


@cache
def benchmark_names() -> tuple[str, ...]:
    """Return the names of the files and folders of trainables/benchmarks that define one; none is imported."""
    files = [(file.stem, file) for file in BENCHMARKS_FOLDER.glob("[a-z]*.py")]
    files += [(file.parent.name, file) for file in BENCHMARKS_FOLDER.glob("*/__init__.py")]
    return tuple(sorted(name for name, file in files if CLASS_PATTERN.search(file.read_text(encoding="utf-8"))))


def _check_benchmark_name(name: str) -> str:
    if name not in benchmark_names():
        raise ValueError(f"unknown benchmark '{name}'; {suggest_name(name, benchmark_names())}")
    return name


BenchmarkName = Annotated[str, AfterValidator(_check_benchmark_name)]
