"""The published settings of each objective, from the sources' own text and code, and what overrides them."""

import itertools
from dataclasses import asdict
from typing import Any, get_args

import pytest

from trainables.config.method_tables import METHODS
from trainables.config.settings import Objective
from trainables.methods import method_constants

# presets, method, splits, numbers. GA+KL of the authors is TOFU's "KL"; WGA of the authors is G-effect's.
PUBLISHED = """
paper,authors,open-unlearning ga forget05 forget_coefficient=1
paper,authors,open-unlearning gd forget05 forget_coefficient=1 retain_coefficient=1
paper,authors,open-unlearning npo forget05 beta=0.1 forget_coefficient=1
paper,authors,open-unlearning npo_gd forget05 beta=0.1 forget_coefficient=1 retain_coefficient=1
paper,authors npo_kl forget05 beta=0.1 forget_coefficient=1 kl_coefficient=1 kl_reduction=all_positions_fixed_pad
open-unlearning npo_kl forget05 beta=0.1 forget_coefficient=1 kl_coefficient=1 kl_reduction=all_positions
paper ga_kl forget05 forget_coefficient=1 kl_coefficient=5 kl_reduction=all_positions_fixed_pad
authors ga_kl forget05 forget_coefficient=1 kl_coefficient=1 kl_reduction=all_positions_fixed_pad
open-unlearning ga_kl forget05 forget_coefficient=1 kl_coefficient=1 kl_reduction=all_positions
paper wga forget05 beta=0.1 forget_coefficient=1 retain_coefficient=0
authors wga forget05 beta=5 forget_coefficient=1 retain_coefficient=0
open-unlearning wga forget05 beta=1 forget_coefficient=1 retain_coefficient=1
paper simnpo forget05,forget10 beta=0.1 margin=0 forget_coefficient=1
authors simnpo forget05 beta=2.5 margin=0
authors simnpo forget10 beta=4.5 margin=0
open-unlearning simnpo forget05 beta=4.5 margin=0
paper simnpo_gd forget05,forget10 beta=0.1 margin=0 forget_coefficient=1 retain_coefficient=0.1
authors simnpo_gd forget05 beta=2.5 margin=0 forget_coefficient=0.1375 retain_coefficient=1
authors simnpo_gd forget10 beta=4.5 margin=0 forget_coefficient=0.125 retain_coefficient=1
open-unlearning simnpo_gd forget05,forget10 beta=4.5 margin=0 forget_coefficient=0.125 retain_coefficient=1
paper rmu bio_cyber layer=7 steering=6.5 alpha=100 rmu_reduction=all_positions
authors rmu forget05 layer=7 steering=6.5 alpha=1200 rmu_reduction=all_positions
open-unlearning rmu forget05 layer=7 steering=2 alpha=1 rmu_reduction=labels
paper,open-unlearning idk_dpo forget05 beta=0.1 forget_coefficient=1 retain_coefficient=1
authors idk_dpo forget05 beta=0.1 forget_coefficient=0.05 retain_coefficient=0
paper,authors idk_nll forget05 forget_coefficient=1 retain_coefficient=1
open-unlearning idk_nll forget05 forget_coefficient=1 retain_coefficient=0
paper,authors undial forget05 beta=10 forget_coefficient=1 retain_coefficient=0 kl_reduction=labels
open-unlearning undial forget05 beta=10 forget_coefficient=1 retain_coefficient=0 kl_reduction=all_positions
paper,open-unlearning satimp forget05 beta=5 beta2=1 forget_coefficient=0.1 retain_coefficient=1
authors satimp forget05 beta=5 beta2=0.1 forget_coefficient=1 retain_coefficient=0.1
paper,authors,open-unlearning ceu forget05 forget_coefficient=1
paper,authors,open-unlearning pdu forget05 forget_coefficient=1 retain_coefficient=100 retain_bound=0.3 dual_warmup=5
paper,authors,open-unlearning pdu forget05 dual_rate=20
paper,authors,open-unlearning pdu news retain_coefficient=50 retain_bound=1.5 dual_rate=1 dual_warmup=3
authors pdu books,books_scal_2 retain_coefficient=50 retain_bound=0.1 dual_rate=1 dual_warmup=3
"""


def test_every_preset_and_reading_is_of_a_setting() -> None:
    known = set(Objective.model_fields) - {"preset"}
    for row in METHODS.values():
        assert set(row.reads) <= known
        assert {name for numbers in row.presets.values() for name in numbers} <= set(row.reads), row.name


@pytest.mark.parametrize("line", PUBLISHED.split("\n")[1:-1])
def test_published_numbers(line: str) -> None:
    named, method, splits, *numbers = line.split()
    for preset, split in itertools.product(named.split(","), splits.split(",")):
        found = asdict(method_constants.resolve_constants(method, Objective.model_validate({"preset": preset}), split))
        for name, value in (number.split("=") for number in numbers):
            chosen = found[name]
            assert chosen == (value if isinstance(chosen, str) else float(value)), (preset, split, name)


STATED: dict[str, Any] = {
    **dict.fromkeys(("beta", "margin", "forget_coefficient", "kl_coefficient", "steering", "dual_rate"), 0.7),
    **dict.fromkeys(("retain_coefficient", "layer", "alpha", "beta2", "retain_bound", "dual_warmup"), 0),
    "kl_reduction": "attended",
    "rmu_reduction": "labels",
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preset", get_args(Objective.model_fields["preset"].annotation))
def test_what_is_stated_overrides_the_preset(preset: Any, method: str) -> None:
    """Zero is a statement too, and a statement beats what a preset says of one split."""
    assert set(STATED) == set(asdict(method_constants.ObjectiveConstants()))
    every = method_constants.resolve_constants(method, Objective(preset=preset, **STATED), "forget10")
    assert asdict(every) == STATED
    plain = asdict(method_constants.resolve_constants(method, Objective(preset=preset), "forget10"))
    for name, value in STATED.items():
        one = method_constants.resolve_constants(method, Objective(preset=preset, **{name: value}), "forget10")
        assert asdict(one) == plain | {name: value}
