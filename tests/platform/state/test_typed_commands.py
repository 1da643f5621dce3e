"""The commands that a sweep's file names: the one that goes on, and all that its trials come from."""

from __future__ import annotations

import pytest

from platform.state.typed_commands import list_commands, resume_command


@pytest.mark.parametrize(
    ("command", "there"),
    [
        ("python -m platform.sweep tiny --storage runs/x --set training.lr=1 --new", " --set training.lr=1"),
        ("python -m platform.sweep tiny --storage=runs/x --retry-failed --reason failed", ""),
        ("python -m platform.sweep tiny", ""),
    ],
)
def test_what_goes_on_names_the_storage_as_it_is_now(command: str, there: str) -> None:
    """It was moved since the command was typed."""
    resumed = f"python -m platform.sweep tiny{there} --resume"
    assert resume_command(command, " --storage moved") == f"{resumed} --storage moved"
    assert resume_command(command, "") == resumed


def test_a_sweep_lists_every_command_that_its_trials_come_from() -> None:
    """The report says how to reproduce all of them; a start that only goes on with one is not another."""
    first, second = "python -m platform.sweep own --only method=ga", "python -m platform.sweep own --seeds 0,1"
    assert list_commands((first,), f"{first} --resume") == (first,)
    listed = list_commands((first,), second)
    assert list_commands(listed, f"{first} --retry-failed") == (first, second)
