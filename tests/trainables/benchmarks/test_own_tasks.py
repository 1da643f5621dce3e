"""Tasks of lm-eval beside rows of one's own: what they count for, and which are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import owned, tiny
from tests.support.families import losses_and_hits
from tests.support.owned import on
from trainables import benchmarks
from trainables.benchmarks import lm_eval_questions, metrics, own
from trainables.benchmarks.own import row_scores
from trainables.common.errors import InputError
from trainables.common.tokens import Example

OWN = own.OwnBenchmark()

files, taught, measured = owned.files, owned.taught, owned.measured


def test_mmlu_and_wmdp_count_in_the_utility(files: dict[str, Path], taught: Any, measured: Any, tmp_path: Path) -> None:
    tiny.write_rows(tmp_path / "wmdp/wmdp-bio/test.json", tiny.choices(6, 1))
    for split in ("test", "dev"):
        tiny.write_rows(tmp_path / f"mmlu/virology/{split}.json", tiny.choices(8, 2))
    places = (f"mmlu={tmp_path / 'mmlu'}", f"wmdp_bio={tmp_path / 'wmdp'}")
    benchmark = on(files, tasks=("mmlu", "wmdp_bio"), places=places)
    OWN.check_settings(benchmark)
    OWN.check_rows(benchmark)
    assert OWN.hub_requirements(benchmark) == ()
    found, records = OWN.measure(taught, tiny.tokenizer(), benchmark, None, token_budget=8192)
    plain, _ = measured
    assert (found["mmlu_questions"], found["wmdp_bio_questions"]) == (8, 6)
    parts = [plain[f"retain_{number}"] for number in row_scores.UTILITY] + [found["mmlu"], found["wmdp_bio"]]
    assert found["utility"] == pytest.approx(metrics.harmonic_mean([float(part or 0) for part in parts]))
    assert {name: value for name, value in found.items() if name in plain and name != "utility"} == {
        name: value for name, value in plain.items() if name != "utility"
    }
    assert len({tuple(record) for record in records}) == 1
    first, _ = benchmarks.halves(benchmark, records, None) or ({}, {})
    parts = [first[f"retain_{number}"] for number in row_scores.UTILITY] + [first["mmlu"], first["wmdp_bio"]]
    assert first["utility"] == pytest.approx(metrics.harmonic_mean([float(part or 0) for part in parts]))
    assert (first["forget_rows"], first["holdout_rows"]) == (3, 2)


@pytest.mark.parametrize(("task", "words"), [("mmlu", "no folder of a subject"), ("arc_easy", "no file of questions")])
def test_a_folder_without_questions_is_told(files: dict[str, Path], task: str, words: str, tmp_path: Path) -> None:
    benchmark = on(files, tasks=(task,), places=(f"{task}={tmp_path}",))
    with pytest.raises(InputError, match=f"^benchmark.sources {task}: .* has {words}"):
        OWN.check_rows(benchmark)


@pytest.mark.slow
def test_any_other_task_of_lm_eval(files: dict[str, Path], tmp_path: Path) -> None:
    """ARC-easy's own definition on made-up rows in its columns; names that lm-eval has not, and what is best low."""
    made = [
        {"id": str(k), "question": row["question"], "answerKey": "ABCD"[row["answer"]]}
        | {"choices": {"text": row["choices"], "label": list("ABCD")}}
        for k, row in enumerate(tiny.choices(7))
    ]
    for split in ("train", "validation", "test"):
        tiny.write_rows(tmp_path / f"arc/{split}.jsonl", made)
    benchmark = on(files, tasks=("arc_easy",), places=(f"arc_easy={tmp_path / 'arc'}",), limit=5)
    network, tokenizer = tiny.network(), tiny.tokenizer()
    found, records = OWN.measure(network, tokenizer, benchmark, None, token_budget=8192)
    asked = [record for record in records if record["task"] == "arc_easy"]
    assert found["arc_easy_questions"] == len(asked) == 5
    for record, question in zip(asked, made, strict=False):
        ids = tokenizer(f"Question: {question['question']}\nAnswer:")["input_ids"]
        told = [tokenizer(f" {text}", add_special_tokens=False)["input_ids"] for text in question["choices"]["text"]]
        naively = [-sum(losses_and_hits(network, Example((*ids, *more), len(ids)))[0]) for more in told]
        assert record["log_likelihoods"] == pytest.approx(naively, rel=1e-4)
        assert record["correct"] == ("ABCD"[int(np.argmax(naively))] == question["answerKey"])
    assert found["arc_easy"] == np.mean([record["correct"] for record in asked])
    tiny.write_rows(tmp_path / "pages/test.jsonl", [{"page": tiny.text(1, 20)}])
    low = on(files, tasks=("wikitext",), places=(f"wikitext={tmp_path / 'pages'}",))
    with pytest.raises(InputError, match=r"tasks: wikitext is measured by its word_perplexity, which is best low"):
        OWN.measure(None, tokenizer, low, None, token_budget=8192)  # no model is asked
    from lm_eval.tasks import TaskManager

    assert lm_eval_questions.definition_files().keys() == set(TaskManager().all_subtasks)
