"""Activations and logits of the memory plan against what PyTorch's memory tracker counts, at full size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from platform.plan.build import make_plan
from platform.plan.costs import Budget
from platform.plan.overrides import apply
from search_spaces.backbones.llama2 import LLAMA2
from search_spaces.backbones.llama3 import LLAMA32_1B
from search_spaces.backbones.phi import PHI
from search_spaces.backbones.zephyr import ZEPHYR
from search_spaces.schema import sweep as spaces
from tests.support import fake_step
from trainables import benchmarks as kinds
from trainables.config.settings import Model, Objective, Rectifier, Resources, Shape
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.training import activation_bytes, memory

EIGHTY = 80e9
MODELS = {"Llama": LLAMA2.shape, "Llama 1B": LLAMA32_1B.shape, "Phi": PHI.shape, "Mistral": ZEPHYR.shape}
SMALL = Shape(hidden=256, layers=4, heads=8, kv_heads=2, head_size=32, intermediate=688, vocabulary=2000)


def trial_of(method: Any, precision: Any = "bf16", layer: int | None = None, **resources: Any) -> Trial:
    """GRU on four GPUs. `attention`: the target's."""
    attention = resources.pop("attention", "sdpa")
    return Trial(
        method=method,
        rectifier=Rectifier(name="gru", gamma=0.8),
        target=Model(path="m", attention=attention),
        objective=Objective(layer=layer),
        resources=Resources(ranks=4, gpus=1, precision=precision, gpu_memory=80, **resources),
    )


def check(peak: memory.Peak, counted: float, shape: Shape, width: int) -> None:
    """What is planned for a pass covers what is counted, and is at most a tenth above it.

    The tracker counts the gradient that autograd makes last, too; the plan has it among the engine's buffers.
    """
    planned, newest = peak.activations + peak.logits, width * shape.hidden * max(shape.vocabulary, shape.intermediate)
    print(f"counted {counted / 1e9:.2f} GB, plan over it {planned / counted:.3f}")
    assert counted <= planned + newest
    assert planned <= 1.1 * counted


def count(trial: Trial, shape: Shape, family: str, rows: int, length: int) -> None:
    planned = memory.peak(trial, shape, 2, rows, max(length, memory.padded_to(trial)))
    counted = fake_step.count_peak(trial, shape, family.split()[0], rows, length)
    check(planned, counted, shape, activation_bytes.WIDTH[trial.resources.precision])


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("family", "method", "settings"),
    [
        ("Llama", "npo", {}),
        pytest.param("Mistral", "npo_kl", {}, marks=SLOW),
        pytest.param("Llama", "rmu", {"layer": 2}, marks=SLOW),
        pytest.param("Phi", "gd", {"precision": "fp32"}, marks=SLOW),
        pytest.param("Qwen2", "gd", {"precision": "fp32"}, marks=SLOW),
        pytest.param("Llama", "ga", {"gradient_checkpointing": True}, marks=SLOW),
        pytest.param("Llama", "ga", {"attention": "eager"}, marks=SLOW),
    ],
)
def test_a_small_model_is_planned_as_it_is_counted(family: str, method: str, settings: dict[str, Any]) -> None:
    shape = SMALL.model_copy(update={"gated": False, "kv_heads": 8} if family == "Phi" else {})
    count(trial_of(method, **settings), shape, family, 4, 120)


@SLOW
@pytest.mark.parametrize("method", ["ga", "npo", "simnpo_gd", "npo_kl", "rmu"])
@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_full_model_is_planned_as_it_is_counted(family: str, method: str, precision: str) -> None:
    """At the micro-batch that is planned for rows of TOFU's longest."""
    if (family, method) == ("Phi", "rmu"):
        pytest.skip("RMU trains down_proj, which Phi has not")
    trial, shape = trial_of(method, precision), MODELS[family]
    rows = memory.fit(trial, shape, 256, EIGHTY).micro_batch
    count(trial, shape, family, rows, 256)


SWEEPS = {"tofu_llama": "Llama", "tofu_phi": "Phi", "wmdp_zephyr": "Mistral", "muse_books": "Llama"}
PAGE = Path(__file__).parents[3] / "docs" / "decisions" / "0006-memory-plan.md"


def row_of(name: str, ranks: int, store: Storage, monkeypatch: pytest.MonkeyPatch) -> str:
    """The largest trial of a sweep on GPUs of 80 GB, as a row of the page's table."""
    monkeypatch.setattr(Budget, "check_fits", lambda self: None)
    settings = [f"resources.ranks={ranks}", "resources.gpu_memory=80"]
    plan = make_plan(apply(spaces.load_sweep(name), settings), store, strategy="paper")
    need = plan.costs.largest
    assert need is not None
    assert plan.shape is not None
    key = (need.method, need.rectifier, need.split)
    trial = next(each for each in plan.trials if (each.method, each.rectifier.name, each.benchmark.split) == key)
    longest = kinds.find(trial.benchmark.name).size_estimate(trial.benchmark, trial.training.max_length).longest
    fit, peak = need.fit, need.fit.peak
    counted = fake_step.count_peak(trial, plan.shape, SWEEPS[name], fit.micro_batch, longest)
    check(peak, counted, plan.shape, activation_bytes.WIDTH[trial.resources.precision])
    sizes = (peak.states.total, peak.buffers, peak.activations + peak.logits, counted, peak.evaluation, peak.total)
    chosen = (
        f"{need.method} {need.rectifier} | {fit.stage} | {fit.micro_batch} x {max(longest, memory.padded_to(trial))}"
    )
    numbers = " | ".join(f"{size / 1e9:.1f}" for size in sizes)
    return f"| `{name}` | {ranks} | {chosen} | {numbers} | {'yes' if fit.fits else 'no'} |"


@SLOW
def test_the_page_has_the_sweeps_plans(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing planned is below what is counted."""
    found = [row_of(name, ranks, store, monkeypatch) for name in SWEEPS for ranks in (1, 2, 4, 8)]
    print("\n".join(found))
    assert [row for row in PAGE.read_text().splitlines() if row.startswith("| `")] == found
