"""The errors a person can meet, each with the words to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(Exception):
    """Something the user gave is wrong: commands print the message alone and exit with status 2."""


class Unreachable(InputError):
    """A storage elsewhere does not answer, or not to us."""


class TrialStopped(Exception):
    """A trial that ended as a known outcome instead of a result; `kind` becomes the trial's status."""

    def __init__(self, kind: str, message: str, step: int | None = None) -> None:
        super().__init__(kind, message, step)  # what it is made from, so that Ray can carry it
        self.kind = kind
        self.message = message
        self.step = step

    def __str__(self) -> str:
        return self.message


class StartAgain(Exception):
    """A rank cannot go on, and has noted what to do otherwise: the launcher ends the others and starts all again."""


def first_line(error: Exception) -> str:
    """What an error of somebody else's code says, in one line; its kind where it says nothing."""
    return str(error).partition("\n")[0] or type(error).__name__


def closest(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'? known: a, b, c` for a message about an unknown `name`."""
    names = list(known)
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{match[0]}'? " if match else ""
    return f"{hint}known: {', '.join(names)}"
