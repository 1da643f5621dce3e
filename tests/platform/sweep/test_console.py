"""What a person who watches a sweep sees, on a terminal and elsewhere."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from platform.state.trial_outcomes import SweepState
from platform.sweep import console
from platform.sweep.console import Counts, Screen
from platform.sweep.start import describe_run
from tests.support.small_sweep import Small
from tests.support.starts import write_result
from trainables.storage.folder_storage import Storage

ROWS = (
    ("gru on npo forget05 gamma=0.8", "training", "5/20", "20 s", "55 s"),
    ("none on ga forget10", "evaluation", "20/20", "3.3 min", ""),
)
SWEEP = Counts("tiny-0a1b2c3d", total=10, slots=2, done=3, running={"a": ("one", 0.0), "b": ("two", 0.0)})


def text(rows: Sequence[Sequence[str]], width: int = 100) -> list[str]:
    terminal = Console(file=io.StringIO(), width=width, record=True)
    terminal.print(console.draw_counts(SWEEP, rows))
    return [line.rstrip() for line in terminal.export_text().splitlines()]


def test_table_shows_trials_steps_and_times() -> None:
    lines = text(ROWS)
    assert lines[1] == "done 3 | running 2 | failed 0 | left 5"
    assert [line.split() for line in lines[3:]] == [" ".join(row).split() for row in ROWS]
    many = text(ROWS * 20, width=60)
    assert (len(many), many[-1]) == (3 + console.SHOWN + 1, "and 28 more")
    assert max(map(len, many)) <= 60
    for narrow in (many, text(ROWS, width=40)):  # names and phases are cut before steps and times are
        assert (narrow[3][-22:].split(), narrow[4].endswith("20/20  3.3 min")) == ("5/20 20 s 55 s".split(), True)


def test_plain_lines_come_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch, store: Storage) -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=20))
    screen.show(SWEEP, store)
    assert not out.getvalue()
    monkeypatch.setattr(console, "PLAIN_SECONDS", -1.0)
    screen.show(SWEEP, store)
    monkeypatch.setattr(console, "PLAIN_SECONDS", 99.0)
    screen.show(Counts("tiny", total=10, slots=2, done=10), store, last=True)
    screen.print_line("[bold] :smile: longer than the window is wide")
    assert out.getvalue().splitlines() == [
        "done 3 | running 2 | failed 0 | left 5",
        "done 10 | running 0 | failed 0 | left 0",
        "[bold] :smile: longer than the window is wide",
    ]


def test_resumed_sweep_counts_what_earlier_starts_did(small: Small, store: Storage) -> None:
    """Three of four trials are done, one of them as a failure; this start has run the fourth."""
    every = small.plan(store, only=["benchmark.split=forget01"]).trials[:4]
    plan = replace(small.plan(store), trials=every)
    outcomes = ("failed", "finished", "diverged")
    state = SweepState(plan, {trial.id(): outcome for trial, outcome in zip(every, outcomes, strict=False)})
    sweep = Counts.from_state(state, state.outstanding, slots=1)
    assert (str(sweep), sweep.total) == ("done 2 | running 0 | failed 1 | left 1", 4)
    for trial, line in zip(every[2:], ("0 of 4 trials run in 0.5 min", "1 of 4 trials run in 0.5 min"), strict=True):
        write_result(store, trial.id())
        assert describe_run(state, store, 30.0) == line
