"""What a person who watches a sweep sees, on a terminal and elsewhere."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from platform.state.trial_outcomes import SweepState
from platform.sweep import console
from platform.sweep.console import Counts, Screen, Waiting
from platform.sweep.finish import describe_saving
from platform.sweep.start import describe_run
from tests.support.small_sweep import Small
from tests.support.starts import write_result
from trainables.storage.folder_storage import Storage

ROWS = (
    ("gru on npo forget05 gamma=0.8", "training", "5/20", "20 s", "55 s"),
    ("none on ga forget10", "evaluation", "20/20", "3.3 min", ""),
)
WAITING = "a trial waits: needs 8 GPUs, 4 free"
SWEEP = Counts("tiny-0a1b2c3d", total=10, slots=2, done=3, running={"a": ("one", 0.0), "b": ("two", 0.0)})


def text(rows: Sequence[Sequence[str]], waiting: str | None, width: int = 100) -> list[str]:
    terminal = Console(file=io.StringIO(), width=width, record=True)
    terminal.print(console.draw_counts(SWEEP, waiting, rows))
    return [line.rstrip() for line in terminal.export_text().splitlines()]


def test_table_shows_trials_steps_times_and_why_one_waits() -> None:
    lines = text(ROWS, WAITING)
    assert lines[1:3] == ["done 3 | running 2 | failed 0 | left 5", WAITING]
    assert [line.split() for line in lines[4:]] == [" ".join(row).split() for row in ROWS]
    many = text(ROWS * 20, None, width=60)
    assert (len(many), many[-1]) == (3 + console.SHOWN + 1, "and 28 more")
    assert max(map(len, many)) <= 60
    for narrow in (many, text(ROWS, None, width=40)):  # names and phases are cut before steps and times are
        assert (narrow[3][-22:].split(), narrow[4].endswith("20/20  3.3 min")) == ("5/20 20 s 55 s".split(), True)


def test_plain_lines_come_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch, store: Storage) -> None:
    out, waiting = io.StringIO(), Waiting({"GPU": 8.0}, lambda: {"GPU": 4.0}, lambda: None)
    screen = Screen(Console(file=out, width=20))
    monkeypatch.setattr(console, "PATIENCE", -1.0)
    screen.show(SWEEP, waiting, store)
    assert not out.getvalue()
    monkeypatch.setattr(console, "PLAIN_SECONDS", -1.0)
    screen.show(replace(SWEEP, slots=3), waiting, store)
    monkeypatch.setattr(console, "PLAIN_SECONDS", 99.0)
    screen.show(Counts("tiny", total=10, slots=2, done=10), waiting, store, last=True)
    screen.print_line("[bold] :smile: longer than the window is wide")
    assert out.getvalue().splitlines() == [
        f"done 3 | running 2 | failed 0 | left 5 | {WAITING}",
        "done 10 | running 0 | failed 0 | left 0",
        "[bold] :smile: longer than the window is wide",
    ]


@pytest.mark.parametrize(
    ("free", "coming", "expected"),
    [
        ({"CPU": 16.0, "GPU": 4.0}, None, "needs 8 GPUs, 4 free"),
        ({"CPU": 16.0, "GPU": 8.0}, None, "its process is starting"),
        ({"CPU": 8.0, "GPU": 7.0}, "0 of up to 4 nodes", "needs 8 GPUs, 7 free; 0 of up to 4 nodes"),
        ({"CPU": 8.0, "GPU": 8.0}, "3 of up to 4 nodes", "its process or a node is starting; 3 of up to 4 nodes"),
    ],
)
def test_why_a_trial_waits(
    monkeypatch: pytest.MonkeyPatch, free: dict[str, float], coming: str | None, expected: str
) -> None:
    waiting = Waiting({"CPU": 1.0, "GPU": 8.0}, lambda: free, lambda: coming)
    sweep = Counts(name="tiny", total=4, slots=2, running={"a": ("one", 0.0)})
    assert waiting.reason(sweep) is None
    monkeypatch.setattr(console, "PATIENCE", -1.0)
    assert waiting.reason(sweep) == f"a trial waits: {expected}"
    sweep.running["b"] = ("two", 0.0)
    assert waiting.reason(sweep) is None
    assert waiting.reason(Counts(name="tiny", total=1, slots=2, running={"a": ("one", 0.0)})) is None


def test_the_end_of_a_search_says_how_many_steps_it_saved() -> None:
    stopped = {"status": "stopped", "training": {"steps": 4}, "error": {"step": 4, "steps": 10}}
    others = [{"status": status, "training": {"steps": 10}} for status in ("finished", "failed")]
    assert describe_saving([stopped, *others]) == "search: 1 of 3 trials stopped, 6 of 30 steps saved"


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
