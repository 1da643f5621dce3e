"""Rows of TOFU as tokens, for tests that train on a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainables.benchmarks.tofu import rows
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark


def encode_rows(
    tokenizer: Any, chosen: Sequence[dict[str, Any]], template: str, dialect: Any, max_length: int
) -> list[Example]:
    """Return questions and answers as a dialect has them."""
    encoder = rows.make_dialect_encoder(Benchmark(template=template, dialect=dialect), tokenizer)
    return encoder.encode([(row["question"], row["answer"]) for row in chosen], max_length=max_length)
