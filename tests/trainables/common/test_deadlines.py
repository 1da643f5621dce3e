"""Waits for what is outside: told of, and ended by their deadline. Templates without end: test_strangers_files.py."""

from __future__ import annotations

import time

import pytest

from tests.support.strange_server import MANNERS, serve_strangely
from trainables.common import deadlines
from trainables.common.errors import InputError


def test_a_call_gives_its_value_or_its_error_or_is_told_of_and_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deadlines, "TOLD_SECONDS", 0.1)
    assert deadlines.call_within(5, "a value", lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        deadlines.call_within(5, "an error", lambda: 1 / 0)
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="a sleeper has not answered in 1 s"):
        deadlines.call_within(1, "a sleeper", lambda: time.sleep(60))
    assert time.monotonic() - begun < 5
    assert capsys.readouterr().err == "waiting for a sleeper, 1 s left\n"


@pytest.mark.parametrize("manner", MANNERS)
def test_a_server_that_gives_no_answer_is_named(manner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs up or says something else is left to the client, which knows what it asked for."""
    monkeypatch.setattr(deadlines, "ANSWER_SECONDS", 0.2)
    with serve_strangely(manner) as (server, _):
        if manner in ("closing", "babbling"):
            deadlines.check_answers(f"http://{server}", "the hub", "try again")
            return
        with pytest.raises(InputError, match=f"the hub at http://{server} has not answered in 0 s; try again"):
            deadlines.check_answers(f"http://{server}", "the hub", "try again")
