"""What every benchmark and every measure has, and how both are found."""

from typing import Any

import pytest
from pydantic import ValidationError

from trainables import benchmarks
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark
from trainables.config.types import list_benchmark_names


def test_benchmarks_are_found_by_name_and_have_goals() -> None:
    """Removal comes first, one goal of retention last."""
    assert list_benchmark_names() == ("muse", "own", "tofu", "wmdp")
    for name in list_benchmark_names():
        assert benchmarks.get_benchmark(name).name == name
        sides = [goal.side for goal in benchmarks.get_benchmark(name).GOALS]
        assert sides == ["removal"] * (len(sides) - 1) + ["retention"]
        assert len(sides) > 1
    words = r"unknown benchmark 'tofuu'; did you mean 'tofu'\? known: muse, own, tofu, wmdp"
    with pytest.raises(InputError, match=rf"benchmark\.name: {words}"):
        benchmarks.get_benchmark("tofuu")
    with pytest.raises(ValidationError, match=words):
        Benchmark(name="tofuu")


OWN = {"data": "own", "split": "own", "template": "plain", "sources": ("forget=a.jsonl", "retain=b.jsonl")}
SETTINGS: dict[str, dict[str, Any]] = {"own": OWN, "muse": {"split": "news"}, "wmdp": {"split": "bio_cyber"}}


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("muse", {"split": "new"}, r"benchmark\.split: unknown split 'new'; did you mean 'news'\? known: news, books"),
        ("muse", {"sources": ("mmlu=somewhere",)}, r"benchmark\.sources: muse has no"),
        ("own", {"holdout": "holdout05"}, r"benchmark\.holdout: own has no"),
        ("wmdp", {"sources": ("mmul=a/b",)}, r"benchmark\.sources: unknown part 'mmul'; did you mean 'mmlu'\?"),
        ("wmdp", {"shots": 6}, r"benchmark\.shots: MMLU has 5 worked examples a subject, got 6"),
        ("own", {"split": "forget05"}, "own has the one split 'own'"),
        ("own", {"sources": (*OWN["sources"], "mmlu=here")}, "'mmlu' is neither rows nor a task of benchmark.tasks"),
        ("own", {"sources": ()}, "own needs forget=FILE, retain=FILE"),
        ("own", {"tasks": ("arc_easy", "mmlu_stem")}, r"no task 'mmlu_stem' \(of its groups, mmlu alone is taken\)"),
    ],
)
def test_settings_of_other_benchmarks_are_refused(name: str, settings: dict[str, Any], words: str) -> None:
    benchmark = Benchmark.model_validate({"name": name, **SETTINGS[name]})
    benchmarks.get_benchmark(name).check_settings(benchmark)
    with pytest.raises(InputError, match=words):
        benchmarks.get_benchmark(name).check_settings(benchmark.model_copy(update=settings))
