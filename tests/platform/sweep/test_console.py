"""What a person who watches a sweep sees, on a terminal and elsewhere."""

from __future__ import annotations

import io
import time
from dataclasses import replace

import pytest
from rich.console import Console

from platform.sweep import console
from platform.sweep.console import ProgressScreen, TrialCounts
from trainables.common import process_identity
from trainables.storage import atomic_files
from trainables.storage.file_names import PROGRESS
from trainables.storage.folder_storage import Storage

SWEEP = TrialCounts("tiny-0a1b2c3d", total=20, slots=2, done=3, running={"a": ("gru on npo forget05", 0.0)})


def test_bars_show_trials_steps_and_times(store: Storage) -> None:
    """Of a trial whose progress is known, of one that is starting, and of no more than a screen holds."""
    known = {"phase": "training", "step": 5, "steps": 20, "training_left": 45.0, "seconds": 20.0, "phase_seconds": 15.0}
    times = {"started": "2026-11-20T10:00:00Z", "beat": time.time()}
    atomic_files.write_json(store.trial("a") / PROGRESS, process_identity.describe_self() | known | times)
    many = SWEEP.running | {str(number): ("none on ga", time.monotonic()) for number in range(12)}
    screen = ProgressScreen(Console(file=io.StringIO(), width=110, force_terminal=True))
    screen.close()
    screen.show(replace(SWEEP, running=many), store, last=True)
    terminal = Console(file=io.StringIO(), width=110, record=True)
    terminal.print(screen.bars)
    lines = [" ".join(line.split()) for line in terminal.export_text().splitlines()]
    assert lines[0].startswith("tiny-0a1b2c3d ")
    assert lines[0].endswith(" done 3 | running 13 | failed 0 | left 4")
    assert lines[1].endswith(" training | 5/20 | 20 s | 45 s")
    assert lines[2].endswith(" starting")
    assert len(lines) == 1 + console.MAX_TRIALS_SHOWN


def test_plain_lines_come_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch, store: Storage) -> None:
    out = io.StringIO()
    screen = ProgressScreen(Console(file=out, width=20))
    screen.show(SWEEP, store)
    assert not out.getvalue()
    monkeypatch.setattr(console, "PLAIN_SECONDS", -1.0)
    screen.show(SWEEP, store)
    monkeypatch.setattr(console, "PLAIN_SECONDS", 99.0)
    screen.show(TrialCounts("tiny", total=10, slots=2, done=10), store, last=True)
    screen.print_line("[bold] :smile: longer than the window is wide")
    assert out.getvalue().splitlines() == [
        "done 3 | running 1 | failed 0 | left 16",
        "done 10 | running 0 | failed 0 | left 0",
        "[bold] :smile: longer than the window is wide",
    ]
