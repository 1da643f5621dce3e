"""The errors that commands report, and words for their messages."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

OUT_OF_MEMORY_PHRASES = ("out of memory", "memoryerror", "not enough memory", "allocate memory", "alloc_failed")
OUT_OF_MEMORY_PHRASES += ("allocation_failed",)
"""What torch, its libraries and Ray say where the memory of a GPU or a machine ran out, in small letters."""


class InputError(Exception):
    """Wrong input: commands print the message alone and exit with status 2."""


class StoreUnreachable(InputError):
    """An object store that does not answer, or refuses access."""


@dataclass
class ProblemCollector:
    """Collects what is wrong, so that a person hears of everything at once."""

    found: list[str] = field(default_factory=list)

    def collect_from(self, action: Any, *arguments: Any) -> Any:
        """Return what an action returns, None if it raises InputError."""
        try:
            return action(*arguments)
        except InputError as error:
            if str(error) not in self.found:
                self.found.append(str(error))
            return None

    def raise_if_any(self) -> None:
        """Raise InputError with all that was found, if anything was."""
        if self.found:
            raise InputError("; ".join(self.found))


class TrialDiverged(Exception):
    """A trial that ended with numbers that are not finite: a known outcome instead of a result."""

    def __init__(self, message: str, step: int | None = None) -> None:
        super().__init__(message, step)  # what it is made from, so that Ray can carry it
        self.message = message
        self.step = step

    def __str__(self) -> str:
        return self.message


class RankRestartNeeded(Exception):
    """Raised by a rank that has noted what to change: the launcher ends the others and starts all again."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: each library has a type and words of its own for it."""
    said = f"{type(error).__name__}: {error}".lower()
    return isinstance(error, MemoryError) or any(words in said for words in OUT_OF_MEMORY_PHRASES)


def first_error_line(error: BaseException) -> str:
    """Return the first line of an error's message, its type if it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def extract_last_error_line(error: Exception) -> str:
    """Return the last line of what an error says, or the cause that a task of Ray puts into it; its type if none."""
    cause = getattr(error, "cause", None) or error
    return extract_last_line(str(cause), type(cause).__name__)


def extract_last_line(text: str, empty: str = "it said nothing") -> str:
    """Return the last line of what a program printed, `empty` if it printed nothing."""
    return (text.strip() or empty).splitlines()[-1]


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'? known: a, b, c` for a message about an unknown `name`."""
    names = list(known)
    by_letters = {one.lower(): one for one in names}
    match = difflib.get_close_matches(name.lower(), by_letters, n=1, cutoff=0.5)
    hint = f"did you mean '{by_letters[match[0]]}'? " if match else ""
    return f"{hint}known: {', '.join(names)}"
