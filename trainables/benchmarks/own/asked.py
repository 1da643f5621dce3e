"""Asks a model for what rows tell, as people do: for a fact to forget in several ways."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainables.benchmarks.own.facts import find_fact, list_words
from trainables.benchmarks.own.row_files import Row
from trainables.data.conversations import Encoder, Question, list_turns

IN_ONE_WORD, BEGINNING = "Answer in one word: ", "The answer is"
LEAST_TOKENS, MOST_TOKENS = 64, 200
Way = tuple[Question, str]
"""A question, and what the answer begins with."""


def list_ways(row: Row) -> list[Way]:
    """Return the ways to ask for a row's fact: its question, its paraphrases, for one word, to go on with an answer.

    That begins with what stands before the fact in its sentence, or with BEGINNING where that is no two words.
    """
    *before, (role, text) = list_turns(row.asked)
    start = find_fact(text, row.answer)[0]
    if row.fact:
        found = (re.search(f"(?<![A-Za-z0-9]){re.escape(one)}", row.answer, re.IGNORECASE) for one in row.fact)
        start = min((one.start() for one in found if one), default=0)
    beginning = re.split(r"(?<=[.!?])\s", row.answer[:start])[-1].strip()
    again = [*row.paraphrases, IN_ONE_WORD + text]
    return [
        (row.asked, ""),
        *(((*before, (role, words)) if before else words, "") for words in again),
        (row.asked, beginning if len(list_words(beginning)) > 1 else BEGINNING),
    ]


def limit_tokens(answer_tokens: int) -> int:
    """Return the most tokens of what a model says: three times the answer's, up to the next power of two."""
    return min(max(LEAST_TOKENS, 2 ** (3 * answer_tokens - 1).bit_length()), MOST_TOKENS)


def generate(
    network: Any, encoder: Encoder, ways: Sequence[Way], limits: Sequence[int], scored: Sequence[Any], budget: int
) -> list[str]:
    """Return what a model says, greedily, asked in each way; `scored`: as of `greedy_answers.generate`."""
    from trainables.inference import greedy_answers

    prompts = [replace(encoder, prefix=beginning).encode_prompts([question])[0] for question, beginning in ways]
    found = [""] * len(ways)
    for limit in sorted(set(limits)):
        places = [k for k, one in enumerate(limits) if one == limit]
        settings: dict[str, Any] = {"token_budget": budget, "new_tokens": limit, "ends": encoder.ends}
        settings["scored"] = [scored[k] for k in places]
        texts = greedy_answers.generate(network, encoder.tokenizer, [prompts[k] for k in places], **settings)
        for k, text in zip(places, texts, strict=True):
            found[k] = encoder.strip_lead(text)
    return found
