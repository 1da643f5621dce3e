"""The seam between benchmarks and their callers: what every benchmark has, whatever it measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainables import benchmarks
from trainables.benchmarks import muse, own, tofu, wmdp
from trainables.common.errors import InputError

KINDS: dict[str, benchmarks.Kind] = {"tofu": tofu, "muse": muse, "wmdp": wmdp, "own": own}
"""Typed, so that pyright compares each module with the protocol."""
HEAVY = ("torch", "transformers", "datasets", "lm_eval", "ray", "mlflow")


def test_every_name_of_the_configuration_is_a_module() -> None:
    assert {name: benchmarks.find(name) for name in benchmarks.NAMES} == KINDS


def test_an_unknown_name_is_refused_with_the_closest() -> None:
    with pytest.raises(InputError, match=r"benchmark\.name: unknown benchmark 'tofuu'; did you mean 'tofu'\? known: "):
        benchmarks.find("tofuu")


def test_benchmarks_are_quick_to_import(root: Path) -> None:
    words = "from trainables import benchmarks; [benchmarks.find(name) for name in benchmarks.NAMES]; import sys; "
    words += f"print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", words], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", benchmarks.NAMES)
def test_removal_comes_first_and_one_goal_of_retention_last(name: str) -> None:
    sides = [goal.side for goal in KINDS[name].GOALS]
    assert sides == ["removal"] * (len(sides) - 1) + ["retention"]
    assert len(sides) > 1


def test_gains_are_turned_so_that_more_is_better() -> None:
    low = benchmarks.Goal("verbmem_f", "removal", "lowest", "VerbMem", "verbatim memorisation")
    assert low.gain(0.25) == -0.25
    assert benchmarks.gains("tofu", {"forget_quality": -5.2, "model_utility": 0.6}) == (-5.2, 0.6)
    assert benchmarks.gains("tofu", {"forget_quality": None, "model_utility": 0.6}) is None
    assert benchmarks.gains("tofu", {}) is None


def test_an_outcome_in_one_phrase() -> None:
    found = {"forget_quality": -5.214, "model_utility": 0.64}
    assert benchmarks.outcome("tofu", found) == "FQ -5.21, MU 0.640"
    assert benchmarks.outcome("tofu", found | {"forget_quality": None}) == "FQ null, MU 0.640"
