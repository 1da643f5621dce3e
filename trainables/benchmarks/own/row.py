"""One of a person's own rows, whatever file it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.benchmarks.own.facts import guess_fact_span
from trainables.data.conversations import Question, Turns, list_turns


@dataclass(frozen=True)
class OwnRow:
    """`question` None: `answer` is a text. `set`: of rows of the file eval. `turns`: of a conversation, before it.

    `fact`: the ways to write what the answer tells; empty: whoever reads it decides. `paraphrases`: of the question.
    `labels`: how many tokens of the answer are read; None: as many as of all rows. `neutral`: the target model's own
    answer to a neutral prompt, which tells no fact.
    """

    question: str | None
    answer: str
    paraphrase: OwnRow | None = None
    set: str | None = None
    turns: Turns | None = None
    fact: tuple[str, ...] = ()
    paraphrases: tuple[str, ...] = ()
    labels: int | None = None
    neutral: bool = False

    @property
    def aliases(self) -> tuple[str, ...]:
        """Return the ways to write what the answer tells."""
        return self.fact or (self.answer[slice(*guess_fact_span(list_turns(self.asked)[-1][1], self.answer))],)

    @property
    def asked(self) -> Question:
        """Return what the answer is to: a question, or the turns of a conversation."""
        return self.turns or self.question or ""

    @property
    def is_text(self) -> bool:
        return self.question is None
