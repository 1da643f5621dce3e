"""Answers like "I do not know", which some objectives prefer to a forget row's own: a text file, one a line."""

from pathlib import Path

from trainables.common import typed_paths
from trainables.common.errors import InputError
from trainables.common.fingerprints import hash_json
from trainables.common.regular_files import read_text

DEFAULT_IDK_ANSWERS_FILE = Path(__file__).with_name("idk.txt")


def read_idk_answers(place: str | None) -> tuple[str, ...]:
    """Return the lines of a file (none: DEFAULT_IDK_ANSWERS_FILE), stripped, without empty ones and comments (#)."""
    path = DEFAULT_IDK_ANSWERS_FILE if place is None else typed_paths.expand_home(place)
    try:
        lines = [line.strip() for line in read_text(path).splitlines()]
    except (OSError, ValueError) as error:
        shown = typed_paths.quote_path(str(place))
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise InputError(f"objective.idk: cannot read {shown}: {reason}; give a text file, an answer a line") from error
    answers = tuple(line for line in lines if line and not line.startswith("#"))
    if not answers:
        raise InputError(f"objective.idk: {path} has no answer; write one a line")
    if objects := [line for line in answers if line.startswith("{")]:
        line = lines.index(objects[0]) + 1
        raise InputError(f"objective.idk: {path}: write each answer as plain text, not as JSON (line {line})")
    return answers


def fingerprint_idk_answers(place: str | None) -> str:
    """Name the answers, wherever their file lies. Raises InputError."""
    return f"lines:{hash_json(read_idk_answers(place))[:16]}"
