"""TOFU (Maini et al., 2024): its rows, and its evaluation in two published dialects (rows.py)."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from trainables.benchmarks import base, measures, metrics
from trainables.benchmarks.base import EvaluationSize, Goal, Metrics, Records, Row, TrainingSize
from trainables.benchmarks.measures import HOLDOUT_SET
from trainables.benchmarks.tofu import aggregates, rows
from trainables.benchmarks.tofu.aggregates import Reference
from trainables.common import typed_paths
from trainables.common.errors import InputError, suggest_name
from trainables.common.fingerprints import hash_json
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark
from trainables.data import raw_rows
from trainables.data.conversations import Encoder, make_encoder

TRUTH_RATIOS_FIELD, ROWS_DIGEST_FIELD, MEMBERSHIP_FIELD = "forget_truth_ratios", "forget_rows_digest", "membership"
"""What a kept evaluation holds for forget quality: the ratios, and which rows they are of; and what of membership."""
MEAN_ROW_TOKENS, MAX_ROW_TOKENS = 80, 256
"""Tokens of a row of TOFU (240 characters on average, 619 at most) with its template."""
OTHER_TASK_ROWS, ANSWERS_PER_ROW = (400, 100, 117), 7
MAX_GENERATED_TOKENS = 200
EncodedRows = tuple[list[tuple[str, int, Row]], list[list[Example]], list[tuple[int, ...]]]
"""Rows with their task and place there, the encoded answers of each, and the prompts of the first of them."""
_KEPT: dict[Any, EncodedRows] = {}
"""What the last four evaluations in this process asked, by the content of rows and tokenizer."""


class TofuBenchmark(base.BenchmarkBase):
    """TOFU on a forget split."""

    GOALS = (
        Goal("forget_quality", "removal", "highest", "FQ", "forget quality (ln p)", digits=2),
        Goal("model_utility", "retention", "highest", "MU", "model utility"),
    )
    TAKES = ("holdout",)
    TARGET = "full"
    ASKS_BY_TEMPLATE = True

    def published_data_id(self, split: str) -> str:
        rows.parse_forget_percentage(split)
        return "locuslab/TOFU"

    def retain_role(self, split: str) -> str | None:
        return f"retain{100 - rows.parse_forget_percentage(split):02d}"

    def list_data_configs(self, benchmark: Benchmark) -> tuple[tuple[str, ...], tuple[str, ...]]:
        training = benchmark.split, f"retain{100 - rows.parse_forget_percentage(benchmark.split):02d}"
        return training, tuple(rows.map_tasks_to_configs(benchmark).values())

    def check_settings(self, benchmark: Benchmark) -> None:
        super().check_settings(benchmark)
        if benchmark.holdout and not rows.needs_holdout(benchmark):
            raise InputError("benchmark.holdout: only measures of membership read it; set benchmark.measures")

    def check_rows(self, benchmark: Benchmark) -> None:
        if raw_rows.check_if_local_folder(benchmark.data):
            self.training_rows(benchmark)
            rows.read_evaluation_rows(benchmark)
        elif benchmark.data == self.published_data_id(benchmark.split) and benchmark.split not in rows.PUBLISHED_SPLITS:
            hint = suggest_name(benchmark.split, rows.PUBLISHED_SPLITS)
            raise InputError(f"benchmark.split: {benchmark.data} has no '{benchmark.split}'; {hint}")

    def describe_odd_rows(self, benchmark: Benchmark) -> str | None:
        if rows.needs_holdout(benchmark) and HOLDOUT_SET not in rows.map_tasks_to_configs(benchmark):
            return f"benchmark.measures: {benchmark.data} has no hold-out rows (holdoutNN), so membership is left out"
        return None

    def fingerprint_shared_rows(self, benchmark: Benchmark) -> str:
        tasks = rows.map_tasks_to_configs(benchmark)
        shared = [config for task, config in tasks.items() if task not in ("forget", HOLDOUT_SET)]
        return raw_rows.fingerprint_data_source(benchmark.data, shared, benchmark.revision)

    def estimate_training_size(self, benchmark: Benchmark, max_length: int) -> TrainingSize:
        points, here = 40 * rows.parse_forget_percentage(benchmark.split), typed_paths.is_folder(benchmark.data)
        points = len(self.training_rows(benchmark)[0]) if here else points
        return TrainingSize(points, min(MEAN_ROW_TOKENS, max_length), min(MAX_ROW_TOKENS, max_length), exact=here)

    def estimate_evaluation_size(self, benchmark: Benchmark) -> EvaluationSize:
        limit = min(filter(None, (rows.RULES[benchmark.dialect].row_limit, benchmark.limit)), default=None)
        sizes = (self.estimate_training_size(benchmark, MEAN_ROW_TOKENS).points or 0, *OTHER_TASK_ROWS)
        count = sum(size if limit is None else min(size, limit) for size in sizes)
        return EvaluationSize(count * ANSWERS_PER_ROW * MEAN_ROW_TOKENS, count * MAX_GENERATED_TOKENS)

    def training_rows(self, benchmark: Benchmark) -> tuple[list[Row], list[Row]]:
        forget, retain = (
            raw_rows.load_rows(benchmark.data, config, rows.PLAIN_COLUMNS, benchmark.revision)
            for config in self.list_data_configs(benchmark)[0]
        )
        return forget, retain

    def make_encoder(self, benchmark: Benchmark, tokenizer: Any) -> Encoder:
        """Return the encoder of the template; the dialect says what is prompt and what is answer."""
        rules = rows.RULES[benchmark.dialect]
        settings = {"tag_is_answer": rules.tag_is_answer, "whole_tail": rules.whole_tail}
        return make_encoder(benchmark.template, tokenizer, **settings)

    def measure(
        self, network: Any, tokenizer: Any, benchmark: Benchmark, reference: Reference | None, *, token_budget: int
    ) -> tuple[Metrics, Records]:
        records = make_question_records(network, tokenizer, benchmark, reference, token_budget=token_budget)
        return _metrics(benchmark, records, reference), records

    def half_metrics(self, benchmark: Benchmark, half: Records, reference: Reference | None, which: int) -> Metrics:
        """Return every number of every other row, membership against the retain model's AUCs on all rows."""
        return _metrics(benchmark, half, reference and reference._replace(ratios=reference.ratios[which::2]))

    def utility_by_row(self, benchmark: Benchmark, records: Records) -> list[metrics.Array]:
        """Return probability, ROUGE and truth ratio of each row of MU's three tasks: (n, 3) each."""
        guard = aggregates.EPSILON_BY_DIALECT[benchmark.dialect]
        return [np.column_stack(aggregates.compute_row_scores(records, task, guard)) for task in metrics.MU_TASKS]

    def make_reference_document(self, benchmark: Benchmark, records: Records) -> dict[str, Any]:
        sides = ("forget", HOLDOUT_SET)
        forget, holdout = ([row for row in records if row["task"] == task] for task in sides)
        ratios = aggregates.truth_ratios(forget, "forget", aggregates.EPSILON_BY_DIALECT[benchmark.dialect]).tolist()
        part = {TRUTH_RATIOS_FIELD: ratios, ROWS_DIGEST_FIELD: _digest(forget)}
        if holdout:
            found = measures.aggregate_measures(benchmark, records)
            part[MEMBERSHIP_FIELD] = {
                "aucs": {name: value for name, value in found.items() if name.startswith("membership")},
                "losses": {task: aggregates.mean_token_losses(records, task, "answer").tolist() for task in sides},
                "rows_digest": _digest(holdout),
            }
        return part

    def parse_reference(self, kept: Mapping[str, Any] | None, benchmark: Benchmark, where: str) -> Reference:
        """Return what the retain model gave. Raises InputError if split, dialect, template or rows differ."""
        asked = rows.read_evaluation_rows(benchmark)
        if kept and isinstance(kept.get("forget_truth_ratio"), dict):  # a TOFU_EVAL.json
            sizes = len(asked["forget"]), len(asked.get(HOLDOUT_SET, ()))
            return aggregates.parse_open_unlearning_log(kept, benchmark, *sizes, where)
        fields = ("split", "dialect", "template")
        kept = base.validate_reference_evaluation(kept, benchmark, where, fields, ROWS_DIGEST_FIELD)
        membership = kept.get(MEMBERSHIP_FIELD) if HOLDOUT_SET in asked else None
        digests = {"forget": kept[ROWS_DIGEST_FIELD]} | ({HOLDOUT_SET: membership["rows_digest"]} if membership else {})
        for task, digest in digests.items():
            if digest != _digest(asked[task]):
                raise InputError(f"{where} was made on other {task} rows than {benchmark.data} holds")
        ratios = np.array(kept[TRUTH_RATIOS_FIELD], dtype=np.float64)
        return Reference(ratios, membership["aucs"], membership["losses"]) if membership else Reference(ratios)


def _metrics(benchmark: Benchmark, records: Records, reference: Reference | None) -> Metrics:
    guard = aggregates.EPSILON_BY_DIALECT[benchmark.dialect]
    count = sum(record["task"] == "forget" for record in records)  # a quick look has the first rows
    ratios = None if reference is None else reference.ratios[:count]
    found = aggregates.aggregate_metrics(records, benchmark.dialect, ratios)
    asked = measures.aggregate_measures(benchmark, records)
    return found | aggregates.derive_open_unlearning_scores(found | asked, reference, guard)


def _digest(asked: Sequence[Row]) -> str:
    return hash_json([[row["question"], row["answer"]] for row in asked])


def make_question_records(
    network: Any,
    tokenizer: Any,
    benchmark: Benchmark,
    reference: Reference | None = None,
    *,
    encoder: Encoder | None = None,
    token_budget: int,
    asked_rows: Mapping[str, Sequence[Row]] | None = None,
) -> Records:
    """Return a record a question: summed losses and token counts of every answer, the generation and its ROUGE.

    Of hold-out rows only the answer is scored. `asked_rows`, by `encoder`: others than the benchmark's, and nothing is
    generated. Rows of a known content are kept as tokens for the process's next evaluations.
    """
    from trainables.inference import generation, scoring

    rules, known = rows.RULES[benchmark.dialect], benchmark.fingerprint and not (encoder or asked_rows)
    encoder = encoder or TofuBenchmark().make_encoder(benchmark, tokenizer)
    if known:
        every, groups, prompts = _encode_once(benchmark, encoder)
    else:
        every, groups, prompts = _encode_rows(benchmark, encoder, asked_rows or rows.read_evaluation_rows(benchmark))
    prompts = [] if asked_rows else prompts
    first, requested = [group[0] for group in groups], measures.list_requested_measures(benchmark)
    standardise = set()
    if "membership_min_k_plus_plus" in requested and every[-1][0] == HOLDOUT_SET:
        standardise = {one for one, (task, _, _) in zip(first, every, strict=True) if task in ("forget", HOLDOUT_SET)}
    every_answer, settings = list(chain(*groups)), {"token_budget": token_budget, "standardise": standardise}
    scored = iter(scoring.score_examples(network, tokenizer, every_answer, **settings))
    scores = [[next(scored) for _ in group] for group in groups]
    texts = generation.generate_texts(
        network,
        tokenizer,
        prompts,
        ends=encoder.end_tokens,
        token_budget=token_budget,
        new_tokens=MAX_GENERATED_TOKENS,
        total=rules.generated_includes_prompt,
        scored=[(example, answers[0].hits) for example, answers, _ in zip(first, scores, prompts, strict=False)],
    )
    records = [_make_record(*row, group, answers) for row, group, answers in zip(every, groups, scores, strict=True)]
    scorer = metrics.make_rouge_scorer("rouge1", "rougeL")
    for record, text in zip(records, map(encoder.strip_answer_tag, texts), strict=False):  # hold-out rows are last
        text = text.strip() if rules.strip else text
        overlap = scorer.score(encoder.strip_end_tokens(record["answer"]), text)
        record |= {"generation": text} | {f"{name}_recall": score.recall for name, score in overlap.items()}
    if not requested:
        return records
    for record, answers, example, (task, at, row) in zip(records, scores, first, every, strict=True):
        record |= measures.extract_measure_inputs(answers[0], benchmark.dialect, example)
        record["answer_text"] = tokenizer.decode(example.input_ids[example.answer_start :], skip_special_tokens=True)
        losses = reference.losses.get(task) if reference else None
        record["reference_loss"] = losses[at] if losses else None
        record["paraphrase"] = row.get("paraphrased_answer") if task == "forget" else None
    return measures.add_row_measures(benchmark, records, () if "paraphrase_rouge" in requested else ("paraphrase",))


def _encode_once(benchmark: Benchmark, encoder: Encoder) -> EncodedRows:
    """Return all rows as tokens, those of an earlier evaluation if its rows and its tokenizer had the same content."""
    tokenizer = encoder.tokenizer
    texts = (tokenizer.special_tokens_map, tokenizer.chat_template)
    key = (benchmark, tokenizer.backend_tokenizer.to_str(), str(texts), encoder.end_tokens)
    if key not in _KEPT:
        if len(_KEPT) == 4:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[key] = _encode_rows(benchmark, encoder, rows.read_evaluation_rows(benchmark))
    return _KEPT[key]


def _encode_rows(benchmark: Benchmark, encoder: Encoder, chosen: Mapping[str, Sequence[Row]]) -> EncodedRows:
    every = [(task, at, row) for task, found in chosen.items() for at, row in enumerate(found)]
    asked = []
    for task, _, row in every:
        answers = [row["answer"]]
        if task != HOLDOUT_SET and "perturbed_answer" in row:
            answers += [row.get("paraphrased_answer", row["answer"]), *row["perturbed_answer"]]
        asked.append([(row["question"], answer) for answer in answers])
    names = [f"{task} row {at + 1}" for (task, at, _), pairs in zip(every, asked, strict=True) for _ in pairs]
    prompts = encoder.encode_prompts([row["question"] for task, _, row in every if task != HOLDOUT_SET])
    pairs, length = [pair for pairs in asked for pair in pairs], rows.RULES[benchmark.dialect].max_length
    encoded = iter(encoder.encode(pairs, max_length=length, names=names))
    return every, [[next(encoded) for _ in pairs] for pairs in asked], prompts


def _make_record(task: str, at: int, row: Row, examples: Sequence[Example], answers: Sequence[Any]) -> dict[str, Any]:
    """Return a row's record without a generation; `answers`: the right one, its paraphrase, the wrong ones."""
    losses, tokens = [one.total_loss for one in answers], [example.answer_token_count for example in examples]
    record = {"task": task, "index": at, "question": row["question"], "answer": row["answer"], "generation": None}
    record |= {"answer_loss": losses[0], "answer_tokens": tokens[0]}
    if len(losses) > 1:
        record |= {"paraphrase_loss": losses[1], "paraphrase_tokens": tokens[1]}
        record |= {"perturbed_loss": losses[2:], "perturbed_tokens": tokens[2:]}
    return record
