"""A row as tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """Token ids of one row; the label positions are `answer_start` to the end."""

    input_ids: tuple[int, ...]
    answer_start: int

    @property
    def answer_tokens(self) -> int:
        return len(self.input_ids) - self.answer_start


@dataclass(frozen=True)
class AnsweredExample(Example):
    """A row, and its question with another answer."""

    other: Example
