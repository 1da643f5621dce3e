"""Whether a model's folder and the rows go together: what a plan and an evaluation ask before a model is loaded.

Without torch: the tokenizer is read by `FolderTokenizer`. A model on the hub, and a folder without tokenizer.json, is
checked where it is loaded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainables import benchmarks
from trainables.benchmarks.base import Row
from trainables.benchmarks.own.row_scores import LABEL_TOKENS
from trainables.common import typed_paths
from trainables.common.errors import InputError
from trainables.common.wording import list_rows
from trainables.config.settings import Benchmark, Model
from trainables.data import text_blocks
from trainables.data.conversations import QUESTION, Encoder, list_turns
from trainables.data.folder_tokenizer import FolderTokenizer
from trainables.data.templates import DATE
from trainables.storage import atomic_files

POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len")
"""The names of a model's longest row in its configuration."""
TRIED = 200
"""Rows of each file that are encoded on trial."""


@dataclass
class Findings:
    """What is wrong, and what is odd: a line each."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check_model_and_rows(benchmark: Benchmark, model: Model, name: str = "target") -> Findings:
    """Return what is wrong with a model's tokenizer, template and positions for the rows. `name`: of the model."""
    found, chosen = Findings(), benchmarks.find(benchmark.name)
    folder = typed_paths.expand(model.tokenizer or model.path)
    if not typed_paths.is_file(folder / "tokenizer.json"):
        return found
    try:
        tokenizer = FolderTokenizer(folder)
        config = atomic_files.read_json(typed_paths.expand(model.path) / "config.json") or {}
        config |= config.get("text_config") or {}
        forget, retain = _read_rows(benchmark)
        sides = {"forget": forget, "retain": retain}
        found.problems += _check_vocabulary(tokenizer, config.get("vocab_size"), sides, name)
        if not chosen.ASKS_BY_TEMPLATE:
            return found
        encoder = chosen.make_encoder(benchmark, tokenizer)
        if encoder.prompt_differs and encoder.template is None:
            found.warnings.append(
                f"{name}: by its chat template a conversation does not begin with the tokens of the prompt; where an "
                "answer begins is told by its characters"
            )
        if encoder.template is not None and tokenizer.chat_template and benchmark.name == "own":
            found.warnings.append(
                f"{name}: it has a chat template, and is asked in '{benchmark.template}'; its own is taken by "
                "--set benchmark.template=chat (of trainables.evaluate --template chat)"
            )
        if encoder.uses_clock:
            found.warnings.append(f"{name}: its chat template writes today's date; it is told {DATE:%d %b %Y} always")
        positions = next((config[key] for key in POSITIONS if isinstance(config.get(key), int)), 0)
        for part, rows in sides.items():
            found.warnings += _warn_of_special_tokens(tokenizer, part, rows)
            _try_rows(encoder, part, rows)
            if benchmark.name == "own" and positions and (long := _find_long_rows(encoder, rows, positions)):
                found.problems.append(
                    f"{part}: more tokens than the {positions} positions of {name}: {list_rows(long)}; shorten "
                    "or leave them out"
                )
    except InputError as error:
        found.problems.append(str(error))
    return found


def _read_rows(benchmark: Benchmark) -> tuple[list[Row], list[Row]]:
    """Return forget and retain rows, none of those that are on the hub."""
    fetched = benchmark.name != "own" and not typed_paths.is_folder(benchmark.data)
    return ([], []) if fetched else benchmarks.find(benchmark.name).training_rows(benchmark)


def _check_vocabulary(
    tokenizer: FolderTokenizer, size: int | None, sides: dict[str, list[Row]], name: str
) -> Iterator[str]:
    """Yield what ids the model has no embedding for, as far as they come up."""
    if size is None:
        return
    beyond = {token: number for token, number in tokenizer.vocabulary.items() if number >= size}
    special = {tokenizer.special(key): key for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    for token, number in sorted(beyond.items(), key=lambda item: item[1]):
        used = [f"{part} {where}" for part, rows in sides.items() if (where := _list_rows_with(token, rows))]
        if number not in tokenizer.added_tokens_decoder or token in special or used:
            why = f", and is its {special[token]}" if token in special else ""
            why += f", and is in {' and in '.join(used)}" if used else ""
            yield (
                f"{name}: the tokenizer's token '{token}' has id {number}, the model's embeddings end at {size - 1}"
                f"{why}; take the tokenizer that belongs to the model: --set tokenizer=DIR_OR_HUB_ID"
            )
            return


def _list_rows_with(text: str, rows: Sequence[Row]) -> str:
    numbers = [number for number, row in enumerate(rows, 1) if text in _text_of(row)]
    return list_rows(numbers) if numbers else ""


def _text_of(row: Row) -> str:
    """Return all texts of a row."""
    return row["text"] if "text" in row else "\n".join((*_turn_texts(row), row["answer"]))


def _turn_texts(row: Row) -> list[str]:
    return [row["question"]] if isinstance(row["question"], str) else [text for _, text in row["question"]]


def _warn_of_special_tokens(tokenizer: FolderTokenizer, part: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield which rows spell special tokens of the tokenizer."""
    special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    pattern = re.compile("|".join(map(re.escape, special)) or "(?!)")
    numbers, shown = [], set()
    for number, row in enumerate(rows, 1):
        if tokens := set(pattern.findall(_text_of(row))):
            numbers.append(number)
            shown |= tokens
    if numbers:
        yield (
            f"{part}: {len(numbers)} of {len(rows)} rows spell special tokens ({', '.join(sorted(shown))}; "
            f"{list_rows(numbers)}): a start token before and an end token behind a text is taken off, all others are "
            "read as what they are; give questions and answers, or `messages`, without what a template adds"
        )


def _try_rows(encoder: Encoder, part: str, rows: Sequence[Row]) -> None:
    """Encode the first rows. Raises InputError where the template loses a part of one, or refuses it."""
    asked = {f"{part} row {number}": row for number, row in enumerate(rows[:TRIED], 1) if "text" not in row}
    encoder.encode([(row["question"], row["answer"]) for row in asked.values()], max_length=sys.maxsize, names=[*asked])


def _find_long_rows(encoder: Encoder, rows: Sequence[Row], positions: int) -> list[int]:
    """Return the numbers of own rows with more tokens than positions.

    A question is never cut; of its answer or a text LABEL_TOKENS are read.
    """
    found, template = [], len(encoder.render_prompt(QUESTION).encode())
    for number, row in enumerate(rows, 1):
        turns = 1 if "text" in row else len(list_turns(row["question"]))
        if len(_text_of(row).encode()) + template * turns <= positions:
            continue  # a token has a byte or more
        if "text" in row:
            tokens = LABEL_TOKENS
            if positions < LABEL_TOKENS:
                tokens = min(tokens, len(text_blocks.tokenize(encoder.tokenizer, row["text"])))
        else:
            (example,) = encoder.encode([(row["question"], row["answer"])], max_length=sys.maxsize)
            tokens = example.answer_start + min(example.answer_tokens, LABEL_TOKENS)
        if tokens > positions:
            found.append(number)
    return found
