"""A row as tokens."""

from dataclasses import dataclass, field, replace
from typing import Self


@dataclass(frozen=True)
class Example:
    """Token ids of one row; the label positions are `answer_start` to the end.

    `lead`, `ending`: labels before and behind the answer itself (an answer tag, an ended turn), not to be measured.
    """

    input_ids: tuple[int, ...]
    answer_start: int
    lead: int = 0
    ending: int = 0

    @property
    def answer_token_count(self) -> int:
        return len(self.input_ids) - self.answer_start

    def keep_first_labels(self, labels: int) -> Self:
        """Return the row with the first `labels` labels."""
        ids = self.input_ids[: self.answer_start + labels]
        return replace(self, input_ids=ids, ending=max(0, self.ending - len(self.input_ids) + len(ids)))


@dataclass(frozen=True)
class RowWithAlternativeAnswer(Example):
    """A row, and its question with another answer."""

    other: Example = field(kw_only=True)
