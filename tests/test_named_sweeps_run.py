"""Trials of the big sweeps, shrunk by --set to a tiny model of their backbone's family and to a few made-up rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import small_sweep
import test_benchmark_plans
import tiny

import platform.plan as planning
from platform.overrides import apply
from search_spaces import base as spaces
from trainables import recipes, storage, trial

SMALL = ("resources.ranks=1", "resources.gpus=0", "resources.precision=fp32", "training.batch_size=2")
SHAPE: dict[str, Any] = {
    "vocab_size": 259,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "max_position_embeddings": 2048,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}


def write_model(folder: Path, family: str) -> Path:
    """Random weights of a family, with the byte tokenizer."""
    import torch
    import transformers

    torch.manual_seed(0)
    shared = {"num_key_value_heads": 1} if family == "Mistral" else {}
    configuration = getattr(transformers, f"{family}Config")(**SHAPE, **shared)
    getattr(transformers, f"{family}ForCausalLM")(configuration).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def muse(place: Path) -> list[str]:
    return [f"benchmark.data={tiny.muse(place / 'data')}", "training.max_length=32", "benchmark.limit=4"]


def wmdp(place: Path) -> list[str]:
    sources = test_benchmark_plans.questions(place)
    data = test_benchmark_plans.corpora(place / "data")
    return [f"benchmark.data={data}", f"benchmark.sources={','.join(sources)}", "training.max_length=32"]


def tofu(place: Path) -> list[str]:
    data = small_sweep.cut_short(small_sweep.write_rows(place / "rows"), place / "data")
    for name in ("forget05_perturbed", "forget05", "retain95"):
        file = data / f"{name}.json"
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:6]))
    return [f"benchmark.data={data}", "benchmark.split=forget05"]


@pytest.mark.parametrize(
    ("name", "family", "rows", "label", "steps"),
    [
        ("tofu_phi", "Phi", tofu, "gru-gd-forget05-g0.1-tnone-s0", 2),
        ("tofu_gamma", "Llama", tofu, "gru-npo-forget05-g0.02-t1-s0", 2),
        ("tofu_ablation", "Llama", tofu, "clip-ga-forget05-t100-s0", 2),
        ("muse_books", "Llama", muse, "gru-npo_gd-books-g0.8-t100-s0", 2),
        ("wmdp_zephyr", "Mistral", wmdp, "gru-wga-bio_cyber-g0.99-t0.001-s0", 2),
        ("wmdp_rmu", "Mistral", wmdp, "gru-rmu-bio_cyber-g0.99-tnone-s0", 2),
    ],
)
def test_a_trial_runs(name: str, family: str, rows: Any, label: str, steps: int, tmp_path: Path) -> None:
    sweep = spaces.find(name)
    assert sweep is not None
    for role in ("full", "retain95", "target", "retain"):
        write_model(tmp_path / "models" / role, family)
    layer = ["objective.layer=1"] if name == "wmdp_rmu" else []
    settings = [*SMALL, f"models={tmp_path / 'models'}", f"training.max_steps={steps}", *layer, *rows(tmp_path)]
    store = storage.open_storage(str(tmp_path / "runs"))
    plan = planning.make(apply(sweep, settings), store, strategy="paper")
    assert plan.needs == ()
    for reference in (ref for ref in plan.references if ref.role == "retain"):
        benchmark = plan.benchmarks[reference.split].model_dump()
        recipes.make_evaluation(reference.model.model_dump(), benchmark, None, str(store.root), plan.sweep.resources)
    chosen = next(found for found in plan.trials if found.label() == label)
    *_, event = trial.run(chosen, store)
    result = event["result"]
    assert result["status"] == "finished", result["error"]
    assert result["training"]["steps"] == steps
    assert result["topology"]["micro_batch"] == 2
    assert all(value is not None for name, value in result["metrics"].items() if name != "privleak")
