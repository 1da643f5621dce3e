"""What a person who watches a sweep sees, on a terminal and elsewhere."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from platform.driver import console, counts
from platform.driver.console import Row, View
from platform.driver.counts import Counts, Waiting
from platform.driver.driver import describe_run
from platform.state.sweep_state import SweepState
from tests.support.small_sweep import Small
from trainables.common import processes
from trainables.storage import files
from trainables.storage.base import PROGRESS, RESULT, Storage

ROWS = (
    Row("gru on npo forget05 gamma=0.8", "training", 5, 20, 20.0, 55.0),
    Row("none on ga forget10", "evaluation", 20, 20, 200.0, None),
)
VIEW = View(
    "tiny-0a1b2c3d", 3, 10, "done 3 | running 2 | failed 0 | left 5", ROWS, "a trial waits: needs 8 GPUs, 4 free"
)


def text(view: View, width: int = 100) -> list[str]:
    terminal = Console(file=io.StringIO(), width=width, record=True)
    terminal.print(console.draw(view))
    return [line.rstrip() for line in terminal.export_text().splitlines()]


def test_picture_tells_trials_steps_times_and_why_one_waits() -> None:
    lines = text(VIEW)
    assert lines[0].startswith("tiny-0a1b2c3d")
    assert lines[1] == VIEW.counts
    assert lines[2] == "a trial waits: needs 8 GPUs, 4 free"
    assert lines[3].split() == ["running", "phase", "step", "for", "left"]
    assert lines[4].startswith("gru on npo forget05 gamma=0.8")
    assert lines[4].split()[-6:] == ["training", "5/20", "20", "s", "55", "s"]
    assert lines[5].split()[-4:] == ["evaluation", "20/20", "3.3", "min"]


def test_picture_of_many_trials_stays_small_and_fits_a_narrow_terminal() -> None:
    many = View("tiny", 0, 99, "running 40", ROWS * 20)
    lines = text(many, width=60)
    assert len(lines) == 3 + console.SHOWN + 1
    assert lines[-1] == "and 28 more"
    assert max(map(len, lines)) <= 60


def test_terminal_keeps_lines_and_takes_the_picture_away() -> None:
    out = io.StringIO()
    screen = console.Terminal(Console(file=out, force_terminal=True, width=100))
    screen.show(lambda: VIEW, last=True)
    screen.say("GA [forget10]: FQ -3.20 (4 s)")
    screen.close()
    assert "GA [forget10]: FQ -3.20 (4 s)" in out.getvalue()
    assert "needs 8 GPUs, 4 free" in out.getvalue()
    up_and_erase = "\x1b[1A\x1b[2K"
    assert out.getvalue().endswith("\r" + up_and_erase * len(text(VIEW)))


def test_plain_lines_come_now_and_then_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = console.Lines()
    screen.show(lambda: pytest.fail("it is not time to look"))
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(console, "PLAIN_SECONDS", -1.0)
    screen.show(lambda: VIEW)
    assert capsys.readouterr().out == f"{VIEW.counts} | {VIEW.waiting}\n"
    monkeypatch.setattr(console, "PLAIN_SECONDS", 99.0)
    screen.show(lambda: View("tiny", 10, 10, "done 10"), last=True)
    assert capsys.readouterr().out == "done 10\n"


def test_no_terminal_gets_plain_lines() -> None:
    assert isinstance(console.open_screen(), console.Lines)


@pytest.mark.parametrize(
    ("free", "told"),
    [
        ({"CPU": 16.0, "GPU": 4.0}, "a trial waits: needs 8 GPUs, 4 free"),
        ({"CPU": 0.5}, "a trial waits: needs 1 CPU, 0.5 free; needs 8 GPUs, 0 free"),
        ({"CPU": 16.0, "GPU": 8.0}, "a trial waits: its process is starting"),
    ],
)
def test_why_a_trial_waits(monkeypatch: pytest.MonkeyPatch, free: dict[str, float], told: str) -> None:
    waiting = Waiting({"CPU": 1.0, "GPU": 8.0}, lambda: free)
    sweep = Counts(name="tiny", total=4, slots=2, running={"a": ("one", 0.0)})
    assert waiting.reason(sweep) is None
    monkeypatch.setattr(counts, "PATIENCE", -1.0)
    assert waiting.reason(sweep) == told
    sweep.running["b"] = ("two", 0.0)
    assert waiting.reason(sweep) is None
    assert waiting.reason(Counts(name="tiny", total=1, slots=2, running={"a": ("one", 0.0)})) is None


def test_resumed_sweep_counts_what_earlier_starts_did(small: Small, store: Storage) -> None:
    """Three of four trials are done, one of them as a failure; this start has run the fourth."""
    every = small.plan(store, only=["benchmark.split=forget01"]).trials[:4]
    plan = replace(small.plan(store), trials=every)
    outcomes = ("failed", "finished", "diverged")
    state = SweepState(plan, {trial.id(): outcome for trial, outcome in zip(every, outcomes, strict=False)})
    sweep = Counts.from_state(state, state.outstanding, slots=1)
    assert str(sweep) == "done 2 | running 0 | failed 1 | left 1"
    assert sweep.total == 4
    for trial, told in zip(every[2:], ("0 of 4 trials run in 0.5 min", "1 of 4 trials run in 0.5 min"), strict=True):
        files.write_json(store.trial(trial.id()) / RESULT, {"status": "finished", "metrics": {}})
        assert describe_run(state, store, 30.0) == told


def test_row_of_a_running_trial_is_what_its_storage_tells(tmp_path: Path) -> None:
    """Before a trial writes anything it is starting."""
    store, now = Storage(tmp_path), time.monotonic()
    running = {"abc": ("one", now), "def": ("two", now)}
    known = {"phase": "training", "step": 5, "steps": 20, "training_left": 45.0, "seconds": 20.0, "phase_seconds": 15.0}
    known |= {"started": "2026-11-20T10:00:00Z", "beat": time.time()}
    files.write_json(store.trial("abc") / PROGRESS, processes.describe_self() | known)
    sweep = Counts(name="tiny", total=2, slots=1, running=running, evaluations=[10.0])
    first, second = sweep.view(store, Waiting({}, dict)).rows
    assert first == Row("one", "training", 5, 20, 20.0, 55.0)
    assert (second.label, second.phase, second.left) == ("two", "starting", None)
