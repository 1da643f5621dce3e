"""Rules of two gradients in a plan: their settings as axes, pairs that are refused or left out, memory, old names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import small_sweep
from tests.support.small_sweep import MakePlan
from trainables.common.errors import InputError

make = small_sweep.plan_objectives
SPLIT = "benchmark.split=forget05"


def rectifiers(make: MakePlan, *typed: str, **more: Any) -> list[dict[str, Any]]:
    plan = make(SPLIT, *typed, **more)
    return [trial.rectifier.model_dump(exclude_none=True) for trial in plan.trials]


def test_a_rule_is_as_published_unless_something_is_typed(make: MakePlan) -> None:
    """The axes of gamma and tau are GRU's; without a moving average a rule has no use for gamma."""
    found = rectifiers(make, "method=npo", "rectifier.name=pcgrad,hamu_q,sago,agem")
    current = {"memory": "current"}
    assert found == [
        {"name": "pcgrad", "scope": "global", **current},
        {"name": "hamu_q", "scope": "tensor", **current},
        {"name": "sago", **current},
        {"name": "agem"},
    ]


def test_scope_and_memory_are_axes(make: MakePlan) -> None:
    typed = ("rectifier.name=blur,sago", "rectifier.memory=current,average", "rectifier.scope=global,tensor")
    plan = make(SPLIT, "method=npo", "rectifier.gamma=0.05,0.8", *typed)
    assert len(plan.trials) == 2 * (1 + 2) + (1 + 2), "each once"
    assert len({plan.label(trial) for trial in plan.trials}) == len(plan.trials)
    assert "blur-npo-forget05-g0.8-memoryaverage-scopetensor-s0" in {plan.label(trial) for trial in plan.trials}
    with pytest.raises(InputError, match="an axis that no trial reads"):
        make(SPLIT, "method=npo", "rectifier.name=blur", "rectifier.gamma=0.05,0.8")
    published = rectifiers(make, "method=npo", "rectifier.name=blur", "rectifier.memory=average", strategy="paper")
    assert published == [{"name": "blur", "gamma": 0.8, "scope": "global", "memory": "average"}]


def test_a_retain_term_is_not_counted_twice(make: MakePlan) -> None:
    studies = make(SPLIT, "method=ga,gd,npo", "rectifier.name=none,blur").trials_by_study()
    assert set(studies) == {f"forget05/{pair}" for pair in ("ga/none", "ga/blur", "gd/none", "npo/none", "npo/blur")}
    words = (
        r"rectifier\.name: 'blur' adds the retain gradient .* method 'gd' .* use a method without one \(ga, wga, npo"
    )
    with pytest.raises(InputError, match=words):
        make(SPLIT, "method=gd", "rectifier.name=blur")
    for method in ("ga_kl", "npo_kl", "npo_gd", "simnpo_gd", "rmu"):
        with pytest.raises(InputError, match=f"retain term of method '{method}' would count twice"):
            make(SPLIT, f"method={method}", "rectifier.name=sago")
    weighted = ("method=wga", "rectifier.name=mgda", "objective.preset=open-unlearning")
    with pytest.raises(InputError, match="method 'wga' would count twice"):
        make(SPLIT, *weighted)
    assert rectifiers(make, *weighted, "objective.retain_coefficient=0")
