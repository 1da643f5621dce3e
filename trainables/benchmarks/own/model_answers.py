"""What a model itself says: to neutral prompts, which makes rows to retain that nobody has to write, and to questions.

A sweep makes the rows once for each model and template, as the file that `benchmark.sources` names `answers`.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from trainables.benchmarks.own.facts import ARTICLES, FUNCTION_WORDS, OwnRow, mentions_fact, split_into_words
from trainables.common.fingerprints import hash_json
from trainables.config.settings import Model
from trainables.config.trial import hashed_settings
from trainables.data import raw_rows
from trainables.data.conversations import Encoder, Question
from trainables.storage import atomic_files

AUTO_RETAIN, ANSWERS_PART = "auto", "answers"
"""What is typed for `retain`, alone or in front of a comma and a file; the part of `benchmark.sources`."""
NEUTRAL_PROMPTS_FILE = Path(raw_rows.__file__).with_name("neutral_prompts.txt")
ANSWER_TOKENS = 64
TRAINED_TOKENS = 16
"""So many of a neutral answer are trained on beside a user's questions, and so many of the model's words to these."""
HELD_OUT_INTERVAL = 5
"""Every fifth answer is not trained on: it measures utility where no other rows are given for that."""


@cache
def read_neutral_prompts() -> tuple[str, ...]:
    return tuple(NEUTRAL_PROMPTS_FILE.read_text(encoding="utf-8").splitlines())


def make_answers_id(model: Model, template: str, precision: str) -> str:
    """Return the hex digits that name a model's answers to the prompts, asked by a template."""
    settings = [hashed_settings(model), template, precision, ANSWER_TOKENS, "as said"]  # before: without secrets
    return hash_json([*settings, *read_neutral_prompts()])[:12]


def generate_answers(
    network: Any, encoder: Encoder, questions: Sequence[Question], token_budget: int, tokens: int = ANSWER_TOKENS
) -> list[str]:
    """Return what a model answers, greedily, in so many tokens at most."""
    from trainables.inference import generation

    settings: dict[str, Any] = {"ends": encoder.end_tokens, "token_budget": token_budget, "new_tokens": tokens}
    texts = generation.generate_texts(network, encoder.tokenizer, encoder.encode_prompts(questions), **settings)
    return [encoder.strip_answer_tag(text).strip() for text in texts]


def answer_neutral_prompts(network: Any, encoder: Encoder, token_budget: int) -> list[tuple[str, str]]:
    """Return the neutral prompts with a model's answers, those that have a text."""
    said = generate_answers(network, encoder, read_neutral_prompts(), token_budget)
    return [(prompt, text) for prompt, text in zip(read_neutral_prompts(), said, strict=True) if text]


def write_answers_to_neutral_prompts(file: Path, network: Any, encoder: Encoder, token_budget: int) -> None:
    """Write a model's answers to the neutral prompts as rows, as they are: nothing is redacted that is trained on."""
    said = answer_neutral_prompts(network, encoder, token_budget)
    rows = [json.dumps({"question": prompt, "answer": text}) + "\n" for prompt, text in said]
    atomic_files.write_text(file, "".join(rows))


def use_model_answers(
    rows: Sequence[OwnRow], tokens: int, *, network: Any, encoder: Encoder, token_budget: int
) -> list[OwnRow]:
    """Return the rows with what a model says to their questions in so many tokens, where that names the fact."""
    asked = list(dict.fromkeys(row for row in rows if not row.is_text and row.labels is None))  # some are there often
    answers = generate_answers(network, encoder, [row.asked for row in asked], token_budget, tokens)
    said = dict(zip(asked, answers, strict=True))
    return [
        replace(row, answer=said[row], labels=tokens, fact=row.aliases)
        if row in said and mentions_fact(said[row], row.aliases)
        else row
        for row in rows
    ]


@lru_cache(maxsize=8)
def drop_rows_near_forget(rows: tuple[OwnRow, ...], forget: tuple[OwnRow, ...]) -> list[OwnRow]:
    """Return the rows that name no fact to forget, nor have half of a forget question's words, function words apart."""
    questions = [row for row in forget if not row.is_text]
    aliases = (alias for row in questions for alias in row.aliases if len(alias) > 1)
    facts = {alias: {*split_into_words(alias)} - ARTICLES for alias in aliases}
    asked = [words for row in questions if (words := _content_words(row.question))]
    found = []
    for row in rows:
        text = f"{row.question}\n{row.answer}"
        near, words = set(split_into_words(text)), _content_words(row.question)
        names = mentions_fact(text, [alias for alias, needed in facts.items() if needed <= near])
        if not names and all(2 * len(words & one) < len(one) for one in asked):
            found.append(row)
    return found


def _content_words(question: str | None) -> set[str]:
    return set(split_into_words(question or "")) - FUNCTION_WORDS
