"""The noise of retraining: KLoM, FQ against several retain models, and what lies within their band."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.stats import retraining_noise
from analysis.tables import detail_tables
from tests.support import sweep_store
from trainables.storage import atomic_files

ROWS = 60
MARGINS = st.lists(st.lists(st.floats(-150, 150), min_size=3, max_size=3), min_size=1, max_size=6)


def naive_klom(unlearned: list[list[float]], retrained: list[list[float]]) -> float:
    """Row by row, bin by bin, as the published definition reads."""
    total = 0.0
    for rows in zip(zip(*unlearned, strict=True), zip(*retrained, strict=True), strict=True):
        one, other = ([min(100.0, max(-100.0, value)) for value in row] for row in rows)
        low, high = min(one + other), max(one + other)
        edges = [float(edge) for edge in np.linspace(low, high if high > low else low + 1, 21)]
        places = [[max(k for k in range(20) if edges[k] <= value) for value in side] for side in (one, other)]
        p, q = ([side.count(k) / len(side) for k in range(20)] for side in places)
        q = [max(b, 1e-5 if a else 0.0) for a, b in zip(p, q, strict=True)]
        total += sum(a * math.log(a * sum(q) / b) for a, b in zip(p, q, strict=True) if a)
    return total / 3


@given(MARGINS, MARGINS)
def test_klom_is_the_mean_divergence_of_two_histograms(one: list[list[float]], other: list[list[float]]) -> None:
    assert retraining_noise.compute_klom(np.array(one), np.array(other)) == pytest.approx(
        naive_klom(one, other), abs=1e-6
    )
    assert retraining_noise.compute_klom(np.array(one), np.array(one)) == pytest.approx(0, abs=1e-9)


def write_rows(path: Path, seed: int, shift: float) -> None:
    """Losses of a model's answers, wrong ones and paraphrases; `shift`: how much better it knows the right ones."""
    dice, base = np.random.default_rng(seed), np.random.default_rng(99).uniform(1, 4, (ROWS, 3))
    noisy = base + dice.normal(0, 0.15, (ROWS, 3)) - np.array([shift, shift, 0])
    kinds, rows = ("answer", "paraphrase"), []
    for k, one in enumerate(noisy):
        row: dict[str, Any] = {"task": "forget", "index": k, "perturbed_loss": [10 * one[2]] * 2}
        row |= {f"{kind}_loss": 10 * loss for kind, loss in zip(kinds, one, strict=False)}
        rows.append(row | {f"{kind}_tokens": 10 for kind in kinds} | {"perturbed_tokens": [10, 10]})
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_files.write_parquet_rows(path, rows)


def test_a_trial_like_a_retrained_model_is_within_the_noise(tmp_path: Path) -> None:
    """Four retain models; GA's trial is as a fifth, NPO's still knows the answers, GD's is as a fifth of less use."""
    trials: list[dict[str, Any]] = [{"method": name, "fq": -1.0, "mu": 0.88} for name in ("ga", "npo")]
    trials.append({"method": "gd", "fq": -1.0, "mu": 0.5})
    sweep_store.make_sweep(tmp_path, *trials, splits=("forget05",))
    (path,) = (tmp_path / "sweeps").glob("*.json")
    document = json.loads(path.read_text())
    for seed in (1, 2, 3):
        key = f"retrained-{seed}"
        found = {"id": key, "model": {}, "metrics": {"model_utility": 0.88 + 0.01 * (seed - 2), "forget_quality": -1.0}}
        sweep_store.write(tmp_path / f"shared/evaluations/{key}/result.json", found)
        document["references"].append({"role": "retrained", "split": "forget05", "evaluation": key})
    path.write_text(json.dumps(document))
    results = sweep_store.read(tmp_path)
    for seed, key in enumerate(["retain-forget05", "retrained-1", "retrained-2", "retrained-3"]):
        write_rows(tmp_path / f"shared/evaluations/{key}/evaluation.parquet", seed, 0.0)
    for place, shift in enumerate((0.0, 2.5, 0.0)):
        write_rows(tmp_path / f"trials/{place:012x}/evaluation.parquet", 10 + place, shift)
    noise = retraining_noise.compare_with_retraining_noise(results).set_index("method")
    assert noise["within"].to_dict() == {"ga": True, "npo": False, "gd": False}
    assert (noise["n"].tolist(), noise["models"].tolist()) == ([1] * 3, [4] * 3)
    assert noise.iloc[0][["utility_low", "utility_high"]].tolist() == pytest.approx([0.87, 0.89])
    npo = noise.to_dict("index")["npo"]
    assert npo["klom"] > npo["klom_high"] > 0
    assert npo["quality"] < -5 < npo["quality_low"]
    assert set(results.models["role"]) == {"original", "retain"}
    assert list(detail_tables.tabulate_retrain_noise(noise.reset_index())["Within"]) == ["yes", "no", "no"]
