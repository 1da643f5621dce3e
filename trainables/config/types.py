"""Types of the fields of a configuration; their bounds keep arithmetic on what people type finite."""

import re
import unicodedata
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from trainables.common.errors import suggest_name
from trainables.common.redaction import has_credentials


def _printable(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    if has_credentials(text):
        raise ValueError("holds a user name or password; leave them out and log in by the environment")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise ValueError("has control characters")
    return text


Name = Annotated[str, Field(max_length=200, pattern=r"^\w[\w.,:+()-]*$")]
"""A name, an id, a commit or a version: a word that a path, a shell, LaTeX, Markdown and a spreadsheet take as one."""
ShortText = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
"""A word or a line for people: its writers escape it."""
IsoTimeText = Annotated[str, AfterValidator(lambda text: datetime.fromisoformat(text) and text)]
IdText = Annotated[str, Field(pattern=r"^\w[\w.,:+@/=-]*$"), AfterValidator(_printable)]
"""A fingerprint or a revision."""
PathOrId = Annotated[str, Field(max_length=4000), AfterValidator(_printable)]
"""A folder, a file or a hub id; a plan checks whether it exists."""

Count = Annotated[int, Field(ge=1, le=10**9)]
Natural = Annotated[int, Field(ge=0, le=10**9)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
NotNegative = Annotated[float, Field(ge=0, le=1e9)]
Share = Annotated[float, Field(gt=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
"""Decay of an exponential moving average: Adam's betas."""

BENCHMARKS_FOLDER = Path(__file__).parents[1] / "benchmarks"
BENCHMARK_CLASS = re.compile(r"^class \w+\((?:\w+\.)*\w*Benchmark(?:Base)?\):", re.MULTILINE)
"""A subclass of BenchmarkBase, or of another benchmark, whose class is called ...Benchmark."""


@cache
def list_benchmark_names() -> tuple[str, ...]:
    """Return the names of the files and folders of trainables/benchmarks that define one; none is imported."""
    files = [(file.stem, file) for file in BENCHMARKS_FOLDER.glob("[a-z]*.py")]
    files += [(file.parent.name, file) for file in BENCHMARKS_FOLDER.glob("*/__init__.py")]
    return tuple(sorted(name for name, file in files if BENCHMARK_CLASS.search(file.read_text(encoding="utf-8"))))


def _check_benchmark_name(name: str) -> str:
    if name not in list_benchmark_names():
        raise ValueError(f"unknown benchmark '{name}'; {suggest_name(name, list_benchmark_names())}")
    return name


BenchmarkName = Annotated[str, AfterValidator(_check_benchmark_name)]
