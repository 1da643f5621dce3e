"""Own rows: what is trained on, every number against a row at a time, tasks of lm-eval beside them, chat templates."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from tests.support import own_rows, tiny
from tests.support.families import generate_alone, losses_and_hits
from tests.support.own_rows import OWN, on
from trainables import benchmarks
from trainables.benchmarks import evaluation, lm_eval_adapter, metrics
from trainables.benchmarks.base import TARGET_IS_OWN_REFERENCE
from trainables.benchmarks.own import kept_answers, row_files, row_scores
from trainables.benchmarks.own.facts import OwnRow
from trainables.common.errors import InputError
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark
from trainables.data import text_blocks
from trainables.data.conversations import make_encoder

files, taught, measured = own_rows.files, own_rows.taught, own_rows.measured


def test_training_rows_are_questions_and_blocks(files: dict[str, Path]) -> None:
    tokenizer = tiny.tokenizer()
    forget, retain = OWN.training_examples(on(files), tokenizer, 64)
    raw = [json.loads(line) for line in files["forget"].read_text().splitlines()]
    pairs = [(row["question"], row["answer"]) for row in raw[:4]]
    asked = make_encoder("plain", tokenizer).encode(pairs, max_length=64)
    assert list(forget[:4]) == asked
    assert list(forget[4:]) == [
        block for r in raw[4:] for block in text_blocks.split_text_into_blocks(tokenizer, r["text"], 64, "")
    ]
    assert len(retain) == 5 + len(text_blocks.split_text_into_blocks(tokenizer, tiny.text(70, 20), 64, ""))
    text = tokenizer.decode(forget[0].input_ids, skip_special_tokens=True)
    assert text == f"Question: Where is the amber?\nAnswer:\n{raw[0]['answer']}"


def restated(network: Any, tokenizer: Any, benchmark: Benchmark) -> dict[str, list[dict[str, float]]]:
    """The numbers of every row of every set; texts of the samples are shorter than a block."""
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    found: dict[str, list[dict[str, float]]] = {}
    for name, rows in row_files.read_evaluation_rows(benchmark).items():
        for r in rows:
            prompt = "" if r.question is None else f"Question: {r.question}\nAnswer:\n"
            ids, given = tokenizer(prompt + r.answer)["input_ids"], len(tokenizer(prompt)["input_ids"])
            losses, hits = losses_and_hits(network, Example((*ids, *([] if r.is_text else [1])), given))
            kept = hits if r.is_text else hits[:-1]
            if r.is_text:
                half = len(ids) // 2
                told, right = generate_alone(network, ids[:half], len(ids) - half), tokenizer.decode(ids[half:])
            else:
                told, right = generate_alone(network, ids[:given], 200), r.answer
            lowest = sorted(-loss for loss in losses)[: max(1, int(0.4 * len(losses)))]
            numbers = {
                "loss": float(np.mean(losses)),
                "prob": float(np.exp(-np.mean(losses))),
                "min_k": float(np.mean(lowest)),
                "extraction_strength": 1 - next(k for k in range(len(kept) + 1) if all(kept[k:])) / len(kept),
                "exact_memorisation": sum(kept) / len(kept),
                "rouge": scorer.score(right, tokenizer.decode(told, skip_special_tokens=True))["rougeL"].recall,
            }
            found.setdefault(name, []).append(numbers)
    return found


def test_every_number_equals_a_naive_one(files: dict[str, Path], taught: Any, measured: Any) -> None:
    found, records = measured
    naively = restated(taught, tiny.tokenizer(), on(files))
    counts = {"forget": 6, "paraphrase": 2, "retain": 2, "holdout": 3}
    assert {name: len(rows) for name, rows in naively.items()} == counts
    for name in ("forget", "paraphrase", "retain"):
        for number in ("extraction_strength", "exact_memorisation", "rouge", "prob"):
            mean = np.mean([numbers[number] for numbers in naively[name]])
            assert found[f"{name}_{number}"] == pytest.approx(mean, rel=1e-4), (name, number)
        assert found[f"{name}_rows"] == len(naively[name])
    for number, sign in (("loss", 1), ("min_k", -1)):
        forget, holdout = ([sign * r[number] for r in naively[name]] for name in ("forget", "holdout"))
        pairs = [float(h > f) + (h == f) / 2 for f in forget for h in holdout]
        assert found[f"membership_{number}_auc"] == pytest.approx(np.mean(pairs))
    assert 0 < found["forget_extraction_strength"] < 1  # type: ignore[operator]
    assert found["utility"] == found["retain_kept"] == 1.0
    assert found["forget_rouge"] > 0.3  # type: ignore[operator]
    told = json.dumps(records)
    assert not any(word in told for word in ("Where", *tiny.WORDS))


def test_more_rows_than_the_limit_are_taken_evenly(files: dict[str, Path]) -> None:
    sets, encoder = row_files.read_evaluation_rows(on(files)), make_encoder("plain", tiny.tokenizer())
    taken = [row_scores.cut_rows_into_items(encoder, name, sets[name], 2) for name in ("forget", "holdout")]
    assert [[(item.index, item.number) for item in found] for found in taken] == [[(0, 0), (1, 3)], [(0, 0), (1, 1)]]
    few, every = (OWN.estimate_evaluation_size(on(files, limit=limit)).generated for limit in (2, None))
    assert (few, every) == (886, 2146), "none after hold-out rows"


def test_a_long_text_is_measured_in_blocks_and_a_long_answer_is_cut() -> None:
    encoder = make_encoder("plain", tiny.tokenizer())
    found = row_scores.cut_rows_into_items(encoder, "forget", [OwnRow(None, "x" * 1200)], None)
    assert [len(item.example.input_ids) for item in found] == [512, 512, 1200 - 2 * 511 + 1]
    assert [(item.index, item.number, item.block) for item in found] == [(k, 0, k) for k in range(3)]
    cut = row_scores.cut_rows_into_items(encoder, "forget", [OwnRow(None, "x" * 5000)], 3)
    assert [item.block for item in cut] == [0, 3, 6]
    (item,) = row_scores.cut_rows_into_items(encoder, "forget", [OwnRow("q" * 600, "y" * 700)], None)
    assert (item.example.answer_token_count, item.example.ending) == (512, 0)


def test_mmlu_and_wmdp_count_in_the_utility(files: dict[str, Path], taught: Any, measured: Any, tmp_path: Path) -> None:
    tiny.write_rows(tmp_path / "wmdp/wmdp-bio/test.json", tiny.choices(6, 1))
    for split in ("test", "dev"):
        tiny.write_rows(tmp_path / f"mmlu/virology/{split}.json", tiny.choices(8, 2))
    places = (f"mmlu={tmp_path / 'mmlu'}", f"wmdp_bio={tmp_path / 'wmdp'}")
    benchmark = on(files, tasks=("mmlu", "wmdp_bio"), places=places)
    OWN.check_settings(benchmark)
    OWN.check_rows(benchmark)
    assert OWN.hub_requirements(benchmark) == ()
    found, records = evaluation.evaluate(
        taught, tiny.tokenizer(), benchmark, TARGET_IS_OWN_REFERENCE, token_budget=8192
    )
    assert len({tuple(record) for record in records}) == 1, "rows of all kinds have all columns"
    plain, _ = measured
    assert (found["mmlu_questions"], found["wmdp_bio_questions"]) == (8, 6)
    assert {name: value for name, value in found.items() if name in plain} == plain
    target = evaluation.make_evaluation_document(benchmark, found, records)
    target |= {"mmlu": 2 * target["mmlu"], "wmdp_bio": min(0.1, target["wmdp_bio"])}
    with pytest.raises(InputError, match=r"^F was made with tasks '\[\]', this evaluation has "):
        OWN.parse_reference(evaluation.make_evaluation_document(on(files), *measured), benchmark, "F")
    utility = kept_answers.compute_kept_utility(found, target, benchmark.tasks)
    assert utility == pytest.approx(metrics.harmonic_mean([1.0, 0.5, 1.0])), "at most 1"
    target |= {"mmlu": 1.0, "wmdp_bio": 0.05}
    first, _ = benchmarks.compute_metrics_of_each_half(benchmark, records, target) or ({}, {})
    assert first["utility"] == pytest.approx(metrics.harmonic_mean([1.0, float(first["mmlu"] or 0)]))
    assert (first["forget_rows"], first["holdout_rows"]) == (3, 2)
    asked = [{"task": "mmlu_anatomy", "score": 1.0}, {"task": "mmlu_pro_law", "score": 0.0}]
    assert [lm_eval_adapter.compute_mean_task_score(task, asked) for task in ("mmlu", "mmlu_pro_law")] == [1.0, 0.0]


@pytest.mark.slow
def test_tasks_are_those_of_lm_eval_that_are_best_high(files: dict[str, Path], tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        tiny.write_rows(tmp_path / f"pages/{split}.jsonl", [{"page": tiny.text(1, 20)}])
    low = on(files, tasks=("wikitext",), places=(f"wikitext={tmp_path / 'pages'}",))
    with pytest.raises(InputError, match=r"tasks: wikitext is measured by its word_perplexity, which is best low"):
        OWN.measure(None, tiny.tokenizer(), low, None, token_budget=8192)  # no model is asked
    from lm_eval.tasks import TaskManager

    assert lm_eval_adapter.map_task_names_to_files().keys() == set(TaskManager().all_subtasks)


def test_a_quick_look_is_at_rows_that_are_measured_whole(files: dict[str, Path], taught: Any, measured: Any) -> None:
    """Evenly spaced rows of each set that goals are made of; what is kept of them is of the same rows' target."""
    _, whole = measured
    reference = {kept_answers.TARGET_SCORES_FIELD: kept_answers.list_target_scores(whole)}
    found, records = OWN.measure_some_rows(taught, tiny.tokenizer(), on(files), reference, token_budget=8192, most=2)
    assert [(row["task"], row["index"]) for row in records] == [
        ("forget", 0),
        ("forget", 3),
        ("retain", 0),
        ("retain", 1),
    ]
    same = [next(row for row in whole if (row["task"], row["index"]) == (one["task"], one["index"])) for one in records]
    assert [row["said"] for row in records] == pytest.approx([row["said"] for row in same])
    assert [row.get("kept") for row in records] == pytest.approx([row.get("kept") for row in same])
    assert (found["forget_rows"], found["utility"]) == (2, 1.0)
