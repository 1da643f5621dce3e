"""A person's own rows: questions with answers, and texts, in JSON Lines, JSON, Parquet or CSV files.

docs/own.md says what a row may have, and what the sets of the file `eval` are. Of requests in a row, `request_01`, ...
are the forget files of those before: measured, not trained on.
"""

import difflib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from trainables.benchmarks.own import model_answers
from trainables.benchmarks.own.facts import OwnRow, mentions_fact, split_into_words
from trainables.benchmarks.own.model_answers import ANSWER_TOKENS, ANSWERS_PART, HELD_OUT_INTERVAL, TRAINED_TOKENS
from trainables.common.errors import InputError, ProblemCollector, suggest_name
from trainables.common.typed_paths import expand_home, is_file, is_folder
from trainables.common.wording import format_count, format_row_numbers
from trainables.config.settings import Benchmark
from trainables.data import raw_rows
from trainables.data.conversations import Turns, list_turns

ROW_FILE_PARTS = ("forget", "retain", "eval")
REQUEST_PREFIX = "request_"
"""In front of a request's number, from 01 on: the split that forgets it, and the part that holds its rows later on."""
MAX_REQUESTS = 99
EVAL_SETS = ("paraphrase", "retain", "other", "holdout")
SUFFIXES = (*raw_rows.SUFFIXES, raw_rows.CSV_SUFFIX)
TEXT_COLUMNS = ("question", "answer", "text", "paraphrased_question", "paraphrased_answer")
LIST_COLUMNS = ("fact", "paraphrases")
"""Columns of a text or a list of texts."""
OPTIONAL_COLUMNS = (*LIST_COLUMNS, "paraphrased_question", "paraphrased_answer")
MAX_ANSWERS_OF_A_QUESTION = 20
"""Of a question with more answers, such as `Summarise.`, none is taken to tell the fact of another."""
MISSING_COLUMNS_TEXT = "neither 'question' and 'answer', 'prompt' and 'completion', 'messages' nor 'text'"

PUNCTUATION_MAP = dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032\u00b4\u02bc"), "'")
PUNCTUATION_MAP |= dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb"), '"')
PUNCTUATION_MAP |= dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-") | dict.fromkeys((0xAD, 0x200B, 0xFEFF), None)
STRIPPED_PUNCTUATION = ".,;:!?'\"()[] \u3002\u2026"
"""Punctuation, without signs that may be a part of a number."""


def is_request_name(name: str) -> bool:
    """Return whether a split or a part is a request's: `request_01`."""
    return re.fullmatch(f"{REQUEST_PREFIX}[0-9]{{2}}", name) is not None


def list_row_parts(benchmark: Benchmark) -> list[str]:
    """Return the parts of `benchmark.sources` that are files of rows."""
    return [part for part in benchmark.places if part in ROW_FILE_PARTS or is_request_name(part)]


def map_request_splits_to_files(place: str) -> dict[str, dict[str, str]]:
    """Return split -> part -> file of each of two or more forget files in a folder, by name: q2 comes before q10."""
    folder = expand_home(place)
    if not is_folder(folder):
        raise InputError(f"requests: no folder '{place}'; give one with a forget file for each request")
    visible = [file for file in folder.iterdir() if not file.name.startswith(".")]  # macOS leaves ._NAME beside NAME
    found = [str(file.absolute()) for file in visible if file.suffix in SUFFIXES and file.is_file()]
    cut = {file: re.split("([0-9]+)", file) for file in found}  # text and digits in turn
    files = sorted(found, key=lambda file: ([int(part) if part.isdecimal() else part for part in cut[file]], file))
    if not 2 <= len(files) <= MAX_REQUESTS:
        raise InputError(
            f"requests: {folder} has {format_count(len(files), 'file')} of rows ({', '.join(SUFFIXES)}); give 2 to "
            f"{MAX_REQUESTS}, a forget file for each request, in the order of their names"
        )
    parts = {f"{REQUEST_PREFIX}{number:02}": file for number, file in enumerate(files, 1)}
    return {
        split: {"forget": file} | {part: before for part, before in parts.items() if part < split}
        for split, file in parts.items()
    }


def read_training_rows(benchmark: Benchmark) -> tuple[Sequence[OwnRow], Sequence[OwnRow]]:
    """Return forget rows and retain rows: those of the file, and the model's own answers but for every fifth."""
    said = [row for number, row in enumerate(_read_answers(benchmark)) if number % HELD_OUT_INTERVAL]
    return read_row_file("forget", benchmark.places["forget"]), [*_read_if_given("retain", benchmark), *said]


def balance_rows_with_model_answers(retain: Sequence[OwnRow]) -> Sequence[OwnRow]:
    """Return retain rows with a few questions of the file as often as they go into the model's own neutral answers.

    The retain loss is a mean over the tokens of rows drawn at random: a few short neighbours would weigh next to
    nothing. Of the answers the first tokens count. Rows without answers, with texts or as many questions stay.
    """
    questions, answers = ([row for row in retain if row.neutral == neutral] for neutral in (False, True))
    if not 0 < len(questions) < len(answers) or any(row.is_text for row in questions):
        return retain
    first = [replace(row, labels=TRAINED_TOKENS) for row in answers]
    return [*questions * (len(answers) // len(questions)), *first]


def _read_answers(benchmark: Benchmark) -> Sequence[OwnRow]:
    """Return the model's answers to neutral prompts, if it gives them; in plans before that, texts of their length."""
    if ANSWERS_PART not in benchmark.places:
        return ()
    rows: Sequence[OwnRow] = [OwnRow(one, "word" * ANSWER_TOKENS) for one in model_answers.read_neutral_prompts()]
    if are_model_answers_ready(benchmark):
        rows = read_row_file(ANSWERS_PART, benchmark.places[ANSWERS_PART])
    files = {part: at for part, at in benchmark.places.items() if part == "forget" or is_request_name(part)}
    answers = tuple(replace(row, labels=ANSWER_TOKENS, neutral=True) for row in rows)
    return model_answers.drop_rows_near_forget(answers, tuple(chain(*map(read_row_file, files, files.values()))))


def are_model_answers_ready(benchmark: Benchmark) -> bool:
    """Return whether the model has given its answers, if it is to."""
    return ANSWERS_PART not in benchmark.places or is_file(expand_home(benchmark.places[ANSWERS_PART]))


def _read_if_given(part: str, benchmark: Benchmark) -> Sequence[OwnRow]:
    return read_row_file(part, benchmark.places[part]) if part in benchmark.places else ()


def read_evaluation_rows(benchmark: Benchmark) -> dict[str, list[OwnRow]]:
    """Return the rows of each set: forget, paraphrase, retain, holdout, requests before; some may be empty."""
    forget, further = read_row_file("forget", benchmark.places["forget"]), _read_if_given("eval", benchmark)
    given = {name: [row for row in further if row.set == name] for name in EVAL_SETS}
    paraphrases = [row.paraphrase for row in forget if row.paraphrase is not None]
    retain = given["retain"] or _read_if_given("retain", benchmark) or _read_answers(benchmark)[::HELD_OUT_INTERVAL]
    return {
        "forget": list(forget),
        "paraphrase": paraphrases + given["paraphrase"],
        "retain": list(retain),
        "other": given["other"],
        "holdout": given["holdout"],
        **{part: list(read_row_file(part, at)) for part, at in benchmark.places.items() if is_request_name(part)},
    }


def check_row_files(benchmark: Benchmark) -> None:
    """Raise InputError with what is wrong in every file."""
    problems = ProblemCollector()
    for part in list_row_parts(benchmark):
        problems.collect_from(read_row_file, part, benchmark.places[part])
    problems.raise_if_any()
    forget, retain = read_training_rows(benchmark)
    if not retain:
        raise InputError("retain=auto: no neutral prompt is unlike the rows to forget; give rows: retain=FILE")
    if {*map(_normalise, forget)} <= {*map(_normalise, retain)}:
        raise InputError("forget, retain: every row of the forget file is in the retain file, and would be retained")


def describe_overlap(benchmark: Benchmark) -> str | None:
    """Return which rows contradict their set: forget rows that are retained, hold-out rows that a model may know."""
    (forget, retain), further = read_training_rows(benchmark), _read_if_given("eval", benchmark)
    kept = _find_same(forget, [*retain, *(row for row in further if row.set in ("retain", "other"))])
    holdout = [number for number, row in enumerate(further, 1) if row.set == "holdout"]
    known = {*_find_same(further, [*forget, *retain])} & {*holdout}
    found = []
    if kept:
        found.append(
            f"forget, retain: {len(kept)} of {len(forget)} forget rows are among the rows to retain, too, which keeps "
            f"them; leave them out there (of the forget file: {format_row_numbers(kept)})"
        )
    if known:
        found.append(
            f"eval: {len(known)} of {len(holdout)} hold-out rows are among the rows to forget or to retain, where "
            f"membership needs rows that no model has seen (of the file eval: {format_row_numbers(sorted(known))})"
        )
    return ". ".join(found) or None


def _find_same(rows: Sequence[OwnRow], others: Sequence[OwnRow]) -> list[int]:
    """Return the numbers of the rows that ask the same as one of `others`, whatever stands before, and tell the same.

    That is the same answer, or one that says the row's fact in other words; a question that many have asks no fact.
    """
    known, answers_by_question = set[tuple[str, str]](), defaultdict[str, set[str]](set)
    for other in others:
        known.add(pair := _normalise(other))
        if not other.is_text:
            answers_by_question[pair[0]].add(other.answer)
    found = []
    for number, row in enumerate(rows, 1):
        pair = _normalise(row)
        answers = () if row.is_text else answers_by_question.get(pair[0], ())
        aliases = row.aliases if 0 < len(answers) <= MAX_ANSWERS_OF_A_QUESTION else ()
        if pair in known or any(mentions_fact(answer, aliases) for answer in answers if aliases):
            found.append(number)
    return found


def _normalise(row: OwnRow) -> tuple[str, str]:
    """Return question and answer without case, normal form, the shape of signs, and white space and signs around."""
    pair = list_turns(row.asked)[-1][1], row.answer
    texts = (unicodedata.normalize("NFKC", text.translate(PUNCTUATION_MAP)) for text in pair)
    question, answer = (" ".join(text.casefold().split()) for text in texts)
    return question.strip(STRIPPED_PUNCTUATION) or question, answer.strip(STRIPPED_PUNCTUATION) or answer


def read_row_file(part: str, place: str) -> Sequence[OwnRow]:
    """Return all rows of a file. Raises InputError with the part, the first bad row and the number of others."""
    file = find_row_file(part, place)
    state = file.stat()
    return _load(part, file, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=2 * MAX_REQUESTS)
def _load(part: str, file: Path, state: tuple[int, int]) -> tuple[OwnRow, ...]:
    """Read once for the many questions of a plan; `state` tells a file that was written again."""
    rows, found, problems = raw_rows.load_rows_from_file(file, part), [], []
    columns = {str(name) for raw in rows if isinstance(raw, dict) for name in raw}
    for name in sorted(columns - {*OPTIONAL_COLUMNS}):
        near = difflib.get_close_matches(name.lower(), OPTIONAL_COLUMNS, n=1, cutoff=0.88)
        if near and near[0] not in columns:
            raise InputError(f"{part}: nothing reads the column '{name}' of {file}; did you mean '{near[0]}'?")
    for number, raw in enumerate(rows, 1):
        try:
            found.append(_parse_row(part, raw))
        except InputError as error:
            problems.append(f"{part}: row {number} of {file} {error}")
    if problems:
        others = f" (and {len(problems) - 1} more rows like it)" if len(problems) > 1 else ""
        raise InputError(problems[0] + others)
    if not found:
        raise InputError(f"{part}: {file} has no rows")
    return tuple(found)


def find_row_file(part: str, place: str) -> Path:
    """Return a file of rows. Raises InputError if there is none, or it has another ending."""
    file = expand_home(place)
    if not is_file(file):
        what = "is a folder" if is_folder(file) else "is no file"
        raise InputError(f"{part}: '{place}' {what}; give one with rows: {', '.join(SUFFIXES)}")
    if file.suffix not in SUFFIXES:
        raise InputError(f"{part}: '{place}' has another ending than {', '.join(SUFFIXES)}")
    return file


def _parse_row(part: str, raw: Any) -> OwnRow:
    """Return a row. Raises InputError with the words that follow `row 3 of FILE`, none of which repeat its text."""
    if not isinstance(raw, dict):
        raise InputError(f"is no JSON object but of type {type(raw).__name__}")
    raw, turns = _as_question(raw)
    given = {name: value for name in TEXT_COLUMNS if (value := raw.get(name)) is not None}
    for name, value in given.items():
        _check_text(name, value)
    given = {name: value for name, value in given.items() if value.strip()}
    lists = {name: _parse_list(name, raw.get(name)) for name in LIST_COLUMNS}
    columns = f"its columns: {raw_rows.describe_columns(raw)}"
    question, answer, paraphrase = given.get("question"), given.get("answer"), None
    if "text" in given:
        if question or answer:
            raise InputError(f"has 'text' as well as 'question' or 'answer'; {columns}")
        if any(lists.values()):
            raise InputError(f"has 'text' with 'fact' or 'paraphrases', which are of a question; {columns}")
        answer = given["text"]
    elif empty := [name for name in ("question", "answer") if name in raw and name not in given]:
        raise InputError(f"has an empty {' and '.join(map(repr, empty))}; {columns}")
    elif not question or not answer:
        raise InputError(f"has {MISSING_COLUMNS_TEXT}; {columns}")
    elif part == "forget" and {"paraphrased_question", "paraphrased_answer"} & given.keys():
        asked_again = given.get("paraphrased_question")
        told = given.get("paraphrased_answer", answer)
        paraphrase = OwnRow(asked_again or question, told, turns=None if asked_again else turns, fact=lists["fact"])
    name = raw.get("set") if part == "eval" else None
    if part == "eval" and name not in EVAL_SETS:
        raise InputError(f"has no such 'set'; {suggest_name(str(name), EVAL_SETS)}")
    return OwnRow(question, answer, paraphrase, name, turns, lists["fact"], lists["paraphrases"])


def _parse_list(name: str, value: Any) -> tuple[str, ...]:
    """Return the texts of a column that has a text or a list of them. Raises InputError if one has no word."""
    found = value if isinstance(value, list) else [] if value is None or value == "" else [value]
    for text in found:
        _check_text(name, text)
        if not split_into_words(text):
            raise InputError(f"has a text without a word in '{name}'")
    return tuple(found)


def _check_text(name: str, value: Any) -> None:
    """Raise InputError if a value is no text, or one that cannot be written."""
    if not isinstance(value, str):
        raise InputError(f"has no text as '{name}' but a value of type {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"has half of a character in '{name}': {error.reason}") from error


def _as_question(raw: dict[str, Any]) -> tuple[dict[str, Any], Turns | None]:
    """Return a row of other shapes with `question` and `answer`, and the turns before it, if several."""
    prompt, completion, messages = raw.get("prompt"), raw.get("completion"), raw.get("messages")
    given = {name for name in ("question", "answer", "text") if raw.get(name) is not None}
    if not given:
        if isinstance(prompt, list) and isinstance(completion, list):  # of messages
            messages = prompt + completion
        elif prompt is not None and completion is not None:
            return raw | {"question": prompt, "answer": completion}, None
    if messages is None:
        return raw, None
    if given:
        raise InputError("has 'messages' as well as 'question', 'answer' or 'text'")
    turns = [turn if isinstance(turn, dict) else {} for turn in (messages if isinstance(messages, list) else [])]
    roles = [str(turn.get("role")).replace("developer", "system") for turn in turns]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    if not spoken or spoken != ["user", "assistant"] * (len(spoken) // 2):
        raise InputError(
            "has other 'messages' than a user's and the assistant's in turn, the last one the answer, and before them "
            "at most one of the system"
        )
    before = [text for turn in turns[:-1] if isinstance(text := turn.get("content"), str)]
    if len(before) < len(turns) - 1:
        raise InputError("has a message in 'messages' whose content is no text")
    found = raw | {"question": "\n\n".join(before), "answer": turns[-1].get("content")}
    return found, tuple(zip(roles, before, strict=False)) if len(before) > 1 else None
