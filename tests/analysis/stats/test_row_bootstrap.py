"""Bootstrap intervals of utility over the evaluation rows, and every seed's row with its interval."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.stats import significance
from analysis.tables import detail_tables
from tests.support.sweep_store import GRU, read, write_sweep, write_trial
from trainables import benchmarks
from trainables.benchmarks.tofu.aggregates import aggregate_metrics
from trainables.config.settings import Benchmark
from trainables.storage.atomic_files import write_parquet_rows
from trainables.storage.file_names import ROWS


def rows(dice: random.Random, counts: dict[str, int]) -> list[dict[str, Any]]:
    """Return an evaluation's rows as the benchmark writes them, with numbers of tokens that differ."""
    records = []
    for task, count in counts.items():
        for index in range(count):
            tokens = [dice.randint(5, 40) for _ in range(7)]
            losses = [n * dice.uniform(0.1, 2.0) for n in tokens]
            records.append(
                {"task": task, "index": index, "question": "q", "answer": "a", "generation": "g"}
                | {"answer_loss": losses[0], "answer_tokens": tokens[0]}
                | {"paraphrase_loss": losses[1] / 2, "paraphrase_tokens": tokens[1]}
                | {"perturbed_loss": losses[2:], "perturbed_tokens": tokens[2:]}
                | {"rouge1_recall": dice.random(), "rougeL_recall": dice.random()}
            )
    return records


COUNTS = {"forget": 12, "retain": 30, "real_authors": 20, "world_facts": 25}


@pytest.mark.parametrize("dialect", ["paper", "open-unlearning"])
def test_parts_give_the_utility_that_the_benchmark_does(dialect: Any) -> None:
    records, tofu = rows(random.Random(1), COUNTS), benchmarks.get_benchmark("tofu")
    parts = tofu.utility_by_row(Benchmark(dialect=dialect), records)
    assert [part.shape for part in parts] == [(30, 3), (20, 3), (25, 3)]
    assert significance.compute_utility_from_rows(parts) == pytest.approx(
        aggregate_metrics(records, dialect)["model_utility"], rel=1e-12
    )


def test_parts_of_the_other_benchmarks_give_their_utility() -> None:
    muse_rows = {"task": "knowmem_r", "rougeL_f1": 0.25}, {"task": "knowmem_f", "rougeL_f1": 0.9}
    muse = benchmarks.get_benchmark("muse").utility_by_row(Benchmark(name="muse", dialect="paper"), list(muse_rows))
    assert significance.compute_utility_from_rows(muse) == 25.0
    asked = [{"task": f"mmlu_{n}", "correct": n > 1} for n in range(4)] + [{"task": "wmdp_bio", "correct": True}]
    assert (
        significance.compute_utility_from_rows(
            benchmarks.get_benchmark("wmdp").utility_by_row(Benchmark(name="wmdp"), asked)
        )
        == 0.5
    )
    kept = {"retain": (1, 0, None), "other": (1, 1, 0.5, 0.5)}  # None: the target does not say it either
    own = [{"task": task, "kept": value} for task, values in kept.items() for value in values]
    parts = benchmarks.get_benchmark("own").utility_by_row(Benchmark(name="own"), own)
    assert significance.compute_utility_from_rows(parts) == pytest.approx(2 / (1 / 0.5 + 1 / 0.75))
    assert benchmarks.get_benchmark("own").utility_by_row(Benchmark(name="own", tasks=("mmlu",)), own) == []


def test_the_interval_is_that_of_a_bootstrap_by_hand() -> None:
    """Another generator, row by row: the bounds agree within what 1,000 resamples leave open."""
    dice = np.random.default_rng(5)
    parts = [dice.uniform(0.2, 1.0, (40, 3)), dice.uniform(0.5, 1.0, (25, 3))]
    resampled = []
    for _ in range(4000):
        chosen = [part[dice.integers(0, len(part), len(part))] for part in parts]
        means = [float(np.mean(part[:, column])) for part in chosen for column in range(3)]
        resampled.append(len(means) / sum(1 / mean for mean in means))
    low, high = significance.percentile_interval(significance.bootstrap_utility_over_rows(parts))
    spread = float(np.std(resampled))
    assert low == pytest.approx(np.quantile(resampled, 0.025), abs=0.25 * spread)
    assert high == pytest.approx(np.quantile(resampled, 0.975), abs=0.25 * spread)
    assert low < significance.compute_utility_from_rows(parts) < high


def with_rows(store: Path, trial: str, halves: bool = False, **given: Any) -> list[dict[str, Any]]:
    """Write a trial whose metrics are those of its evaluation's rows, FQ apart."""
    records = rows(random.Random(trial), COUNTS)
    found = [
        aggregate_metrics(part, "paper") for part in (records, *(benchmarks.every_other(records, n) for n in (0, 1)))
    ]
    whole, *half = [one | {"forget_quality": -3.0, "forget_quality_ks": 0.25} for one in found]
    write_trial(store, trial, metrics=whole, halves=half if halves else None, **given)
    write_parquet_rows(store / "trials" / trial / ROWS, records)
    return records


def test_intervals_are_of_the_rows_that_are_reported(tmp_path: Path) -> None:
    records = with_rows(tmp_path, "gru", halves=True, rectifier=GRU)
    write_sweep(tmp_path, ["gru"], selection={"halves": True})
    parts = benchmarks.get_benchmark("tofu").utility_by_row(Benchmark(), benchmarks.every_other(records, 1))
    (row,) = read(tmp_path).chosen_values.to_dict("records")
    assert (row["low"], row["high"]) == significance.percentile_interval(
        significance.bootstrap_utility_over_rows(parts)
    )
    assert row["model_utility"] == pytest.approx(significance.compute_utility_from_rows(parts))


def test_every_seed_has_its_distance_and_its_interval(tmp_path: Path) -> None:
    for seed in (0, 1):
        with_rows(tmp_path, f"plain{seed}", seed=seed)
    records = with_rows(tmp_path, "gru", rectifier=GRU)
    write_trial(tmp_path, "bare", "gd", fq=-4.0, mu=0.5)
    with_rows(tmp_path, "other", method="npo")
    write_parquet_rows(tmp_path / "trials/other" / ROWS, records)  # of another evaluation
    write_sweep(tmp_path, ["plain1", "plain0", "gru", "bare", "other"], splits=("forget05",))
    results = read(tmp_path)
    frame = results.chosen_values.set_index("id")
    assert frame.index.tolist() == ["plain0", "plain1", "gru", "bare", "other"]
    assert frame.loc["gru", ["forget_quality_ks", "forget_rows", "seed"]].tolist() == [0.25, 12, 0]
    parts = benchmarks.get_benchmark("tofu").utility_by_row(Benchmark(), records)
    assert frame.loc["gru", ["low", "high"]].tolist() == list(
        significance.percentile_interval(significance.bootstrap_utility_over_rows(parts))
    )
    assert np.isnan(frame.loc[["bare", "other"], ["low", "high"]].to_numpy()).all()
    assert all(frame["low"].dropna() < frame["model_utility"][:3])
    row = detail_tables.tabulate_seeds(results).iloc[2]
    assert (row["KS D"], row["n"], row["Method"]) == ("0.250", "12", "GA w/ GRU")
