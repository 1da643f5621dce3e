"""Plans of sweeps on other benchmarks than TOFU: with and without a retain model, data in several places, the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from platform.plan import requirements
from platform.plan.build import make_plan
from platform.plan.overrides import apply
from search_spaces.schema.sweep import Published, Sweep
from search_spaces.tofu_tiny import SWEEP
from tests.support import small_sweep, tiny
from trainables.benchmarks import muse, wmdp
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark
from trainables.storage.base import Storage

WMDP = wmdp.WmdpBenchmark()

MUSE = muse.MuseBenchmark()


def sweep(benchmark: Benchmark, **settings: Any) -> Sweep:
    fields: dict[str, Any] = {"name": "other", "title": "another benchmark", "methods": ("ga", "npo"), "seeds": (0,)}
    fields |= {"splits": (benchmark.split,), "benchmark": benchmark, "model_training": SWEEP.model_training}
    return Sweep.model_validate(fields | {"published": (Published(gamma=0.8, tau=None),)} | settings)


def questions(folder: Path) -> tuple[str, ...]:
    for name in wmdp.QUESTIONS.values():
        tiny.write_rows(folder / f"questions/{name}/test.json", tiny.choices(2))
    for split in ("test", "dev"):
        tiny.write_rows(folder / f"mmlu/virology/{split}.json", tiny.choices(2))
    return f"mmlu={folder / 'mmlu'}", f"wmdp={folder / 'questions'}"


def corpora(folder: Path) -> Path:
    for topic in ("bio", "cyber"):
        for side in ("forget", "retain"):
            tiny.write_rows(folder / f"{topic}-{side}-corpus.jsonl", [{"text": tiny.text(1, 12)}])
    return folder


def test_without_a_retain_model_there_is_one_reference(tmp_path: Path, store: Storage) -> None:
    target = small_sweep.write_model(tmp_path / "target")
    data, sources = corpora(tmp_path / "data"), questions(tmp_path)
    benchmark = Benchmark(name="wmdp", data=str(data), split="bio_cyber", sources=sources)
    plan = make_plan(sweep(benchmark, target=str(target)), store, strategy="paper")
    assert [(ref.role, ref.model.path) for ref in plan.references] == [("original", str(target))]
    assert plan.retain_reference("bio_cyber") is None
    assert [trial.retain_evaluation for trial in plan.trials] == [None] * 4
    assert {trial.benchmark.fingerprint for trial in plan.trials} == {WMDP.fingerprint(benchmark)}
    assert plan.hub == ()


def test_places_of_the_data_do_not_enter_an_id(tmp_path: Path, store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    target, ids = small_sweep.write_model(tmp_path / "target"), []
    for name in ("one", "other"):
        sources = questions(tmp_path / name)
        benchmark = Benchmark(name="wmdp", data=str(corpora(tmp_path / name)), split="cyber", sources=sources)
        plan = make_plan(sweep(benchmark, target=str(target)), store)
        ids.append((plan.hash, [trial.id() for trial in plan.trials]))
    assert ids[0] == ids[1]
    monkeypatch.chdir(tmp_path / "one")
    here = apply(sweep(benchmark, target=str(target)), ["benchmark.sources=mmlu=mmlu,wmdp=questions"])
    (found,) = {trial.benchmark.sources for trial in make_plan(here, store).trials}
    assert found == (f"mmlu={tmp_path / 'one' / 'mmlu'}", f"wmdp={tmp_path / 'one' / 'questions'}")


def test_the_hubs_data_is_what_a_start_needs(tmp_path: Path, store: Storage) -> None:
    target = small_sweep.write_model(tmp_path / "target")
    benchmark = Benchmark(name="wmdp", data="cais/wmdp-corpora", split="bio")
    plan = make_plan(sweep(benchmark, target=str(target)), store, strategy="paper")
    assert plan.hub == WMDP.hub_requirements(benchmark)
    needs = requirements.describe_needs(plan.sweep, plan.hub, store)
    corpora = next(need for need in needs if need.startswith("data set cais/wmdp-corpora"))
    assert "bring bio-retain-corpus.json (or .jsonl, .parquet) to DIR and --set benchmark.data=DIR" in corpora
    assert any("is gated" in need for need in needs)


def test_muse_has_a_retain_model_of_its_own(tmp_path: Path, store: Storage) -> None:
    models = tmp_path / "models"
    for role in (MUSE.TARGET, muse.RETAIN):
        small_sweep.write_model(models / role, role)
    benchmark = Benchmark(name="muse", data=str(tiny.muse(tmp_path / "data")), split="news")
    plan = make_plan(sweep(benchmark, models=str(models)), store, strategy="paper")
    found = [(ref.role, Path(ref.model.path).name) for ref in plan.references]
    assert found == [("original", "target"), ("retain", "retain")]
    reference = plan.retain_reference("news")
    retain = {trial.retain_evaluation and trial.retain_evaluation.fingerprint for trial in plan.trials}
    assert retain == {reference and reference.evaluation}


def test_all_that_is_wrong_is_told(tmp_path: Path, store: Storage) -> None:
    target = small_sweep.write_model(tmp_path / "target")
    benchmark = Benchmark(name="wmdp", data=str(tmp_path), split="chem", template="lama2")
    with pytest.raises(InputError, match=r"unknown template 'lama2'.*; benchmark\.split: unknown split 'chem'"):
        make_plan(sweep(benchmark, target=str(target)), store)
