"""Rows of METHODS and RECTIFIERS that files in trainables/methods/custom/ add, without being imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainables.config import method_tables
from trainables.config.method_tables import NEEDS, RETAIN_PASS, SETTINGS, MethodRow, RectifierRow

MAKE, CLASS = "def make(constants, seed): ...\n", "class Rectifier: ...\n"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (MAKE, [MethodRow("added", "added", NEEDS, custom=True)]),
        (f"import nowhere\nLABEL, OTHER = 'no', 1\n{MAKE}", [MethodRow("added", "added", NEEDS, custom=True)]),
        (f"LABEL = 'My own'\nNEEDS = ()\n{MAKE}", [MethodRow("added", "My own", custom=True)]),
        (CLASS, [RectifierRow("added", "added", (RETAIN_PASS,), takes=SETTINGS, custom=True)]),
        (
            f"ADDS_RETAIN = True\n{CLASS}",
            [RectifierRow("added", "added", (RETAIN_PASS,), takes=SETTINGS, adds_retain=True, custom=True)],
        ),
        (f"NEEDS = ()\nTAKES = ('tau',)\n{CLASS}", [RectifierRow("added", "added", takes=("tau",), custom=True)]),
    ],
)
def test_a_file_says_what_is_added_and_the_most_is_assumed_of_the_rest(
    tmp_path: Path, text: str, rows: list[Any]
) -> None:
    (tmp_path / "added.py").write_text(text)
    assert list(method_tables._read_custom_file(tmp_path / "added.py")) == rows


def test_every_preset_and_reading_is_of_a_setting() -> None:
    from trainables.config.settings import Objective

    known = set(Objective.model_fields) - {"preset"}
    for row in method_tables.METHODS.values():
        assert set(row.reads) <= known
        assert {name for numbers in row.presets.values() for name in numbers} <= set(row.reads), row.name
