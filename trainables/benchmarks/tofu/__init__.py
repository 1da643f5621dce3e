"""TOFU (Maini et al., 2024): its rows, and its evaluation in two published dialects (rows.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainables.benchmarks import base, measures, metrics
from trainables.benchmarks.base import EvaluationSize, Examples, Goal, Metrics, Records, Row, TrainingSize
from trainables.benchmarks.measures import HOLDOUT
from trainables.benchmarks.tofu import aggregates, row_scores, rows
from trainables.benchmarks.tofu.aggregates import Reference
from trainables.common import typed_paths
from trainables.common.errors import InputError, suggest_name
from trainables.common.fingerprints import hash_json
from trainables.config.settings import Benchmark
from trainables.data import raw_rows
from trainables.data.conversations import Encoder

RATIOS_FIELD, ROWS_DIGEST_FIELD, MEMBERSHIP_FIELD = "forget_truth_ratios", "forget_rows_digest", "membership"
"""What a kept evaluation holds for forget quality: the ratios, and which rows they are of; and what of membership."""
MEAN_TOKENS, LONGEST_TOKENS = 80, 256
"""Tokens of a row of TOFU (240 characters on average, 619 at most) with its template."""
OTHER_TASK_ROWS, ANSWERS_PER_ROW = (400, 100, 117), 7


class TofuBenchmark(base.BenchmarkBase):
    """TOFU on a forget split."""

    GOALS = (
        Goal("forget_quality", "removal", "highest", "FQ", "forget quality (ln p)", digits=2),
        Goal("model_utility", "retention", "highest", "MU", "model utility"),
    )
    TAKES = ("holdout",)
    TARGET = "full"
    ASKS_BY_TEMPLATE = True
    UTILITY_COLUMNS = aggregates.RECORD_COLUMNS_FOR_UTILITY

    def published_data_id(self, split: str) -> str:
        rows.forget_percentage(split)
        return "locuslab/TOFU"

    def retain_role(self, split: str) -> str | None:
        return f"retain{100 - rows.forget_percentage(split):02d}"

    def training_data_configs(self, split: str) -> tuple[str, ...]:
        return split, f"retain{100 - rows.forget_percentage(split):02d}"

    def evaluation_data_configs(self, benchmark: Benchmark) -> tuple[str, ...]:
        return tuple(rows.evaluation_tasks(benchmark).values())

    def check_settings(self, benchmark: Benchmark) -> None:
        super().check_settings(benchmark)
        if benchmark.holdout and not rows.needs_holdout(benchmark):
            raise InputError("benchmark.holdout: only measures of membership read it; set benchmark.measures")

    def check_rows(self, benchmark: Benchmark) -> None:
        if raw_rows.is_local_folder(benchmark.data):
            self.training_rows(benchmark)
            rows.read_evaluation_rows(benchmark)
        elif benchmark.data == self.published_data_id(benchmark.split) and benchmark.split not in rows.PUBLISHED_SPLITS:
            hint = suggest_name(benchmark.split, rows.PUBLISHED_SPLITS)
            raise InputError(f"benchmark.split: {benchmark.data} has no '{benchmark.split}'; {hint}")

    def warn_about_rows(self, benchmark: Benchmark) -> str | None:
        if rows.needs_holdout(benchmark) and HOLDOUT not in rows.evaluation_tasks(benchmark):
            return f"benchmark.measures: {benchmark.data} has no hold-out rows (holdoutNN), so membership is left out"
        return None

    def fingerprint_all_splits(self, benchmark: Benchmark) -> str:
        tasks = rows.evaluation_tasks(benchmark)
        shared = [config for task, config in tasks.items() if task not in ("forget", HOLDOUT)]
        return raw_rows.fingerprint_rows(benchmark.data, shared, benchmark.revision)

    def count_forget_points(self, benchmark: Benchmark) -> int | None:
        return len(self.training_rows(benchmark)[0]) if typed_paths.is_folder(benchmark.data) else None

    def training_size(self, benchmark: Benchmark, max_length: int) -> TrainingSize:
        points = self.count_forget_points(benchmark)
        if points is None and (match := re.fullmatch(r"forget([0-9]{2})", benchmark.split)):
            points = 40 * int(match[1])
        return TrainingSize(points, min(MEAN_TOKENS, max_length), min(LONGEST_TOKENS, max_length))

    def evaluation_size(self, benchmark: Benchmark) -> EvaluationSize:
        """Count answers of MEAN_TOKENS with their question, and generations to their end."""
        limit = min(filter(None, (rows.RULES[benchmark.dialect].row_limit, benchmark.limit)), default=None)
        sizes = (self.training_size(benchmark, MEAN_TOKENS).points or 0, *OTHER_TASK_ROWS)
        count = sum(size if limit is None else min(size, limit) for size in sizes)
        return EvaluationSize(count * ANSWERS_PER_ROW * MEAN_TOKENS, count * row_scores.MAX_GENERATED_TOKENS)

    def training_rows(self, benchmark: Benchmark) -> tuple[list[Row], list[Row]]:
        columns = ("question", "answer")
        forget, retain = (
            raw_rows.load_rows(benchmark.data, config, columns, benchmark.revision)
            for config in self.training_data_configs(benchmark.split)
        )
        return forget, retain

    def training_examples(self, benchmark: Benchmark, tokenizer: Any, max_length: int) -> tuple[Examples, Examples]:
        encoder = self.make_encoder(benchmark, tokenizer)
        pairs = [[(row["question"], row["answer"]) for row in side] for side in self.training_rows(benchmark)]
        return encoder.encode(pairs[0], max_length=max_length), encoder.encode(pairs[1], max_length=max_length)

    def make_encoder(self, benchmark: Benchmark, tokenizer: Any) -> Encoder:
        return rows.make_dialect_encoder(benchmark, tokenizer)

    def measure(
        self, network: Any, tokenizer: Any, benchmark: Benchmark, reference: Reference | None, *, token_budget: int
    ) -> tuple[Metrics, Records]:
        """Return every number, FQ against the retain model's truth ratios, and the per-row records."""
        records = row_scores.score_answers(network, tokenizer, benchmark, reference, token_budget=token_budget)
        return _metrics(benchmark, records, reference), records

    def half_metrics(self, benchmark: Benchmark, records: Records, reference: Reference | None, which: int) -> Metrics:
        """Return every number of every other row, membership against the retain model's AUCs on all rows."""
        half = None if reference is None else reference._replace(ratios=reference.ratios[which::2])
        return _metrics(benchmark, base.every_other(records, which), half)

    def utility_by_row(self, benchmark: Benchmark, records: Records) -> list[metrics.Array]:
        """Return probability, ROUGE and truth ratio of each row of MU's three tasks: (n, 3) each."""
        guard = aggregates.EPSILONS[benchmark.dialect]
        return [np.column_stack(aggregates.row_utilities(records, task, guard)) for task in metrics.MU_TASKS]

    def make_reference_document(self, benchmark: Benchmark, records: Records) -> dict[str, Any]:
        ratios = aggregates.truth_ratios(records, "forget", aggregates.EPSILONS[benchmark.dialect]).tolist()
        part = {RATIOS_FIELD: ratios, ROWS_DIGEST_FIELD: _digest(records, "forget")}
        if any(row["task"] == HOLDOUT for row in records):
            losses = {task: aggregates.mean_loss(records, task, "answer").tolist() for task in ("forget", HOLDOUT)}
            found = measures.average_measures(benchmark, records)
            aucs = {name: value for name, value in found.items() if name.startswith("membership")}
            part[MEMBERSHIP_FIELD] = {"aucs": aucs, "losses": losses, "rows_digest": _digest(records, HOLDOUT)}
        return part

    def read_reference(self, kept: Mapping[str, Any] | None, benchmark: Benchmark, where: str) -> Reference:
        """Return what the retain model gave. Raises InputError if split, dialect, template or rows differ."""
        if kept and isinstance(kept.get("forget_truth_ratio"), dict):  # a TOFU_EVAL.json
            found = rows.read_evaluation_rows(benchmark)
            sizes = len(found["forget"]), len(found.get(HOLDOUT, ()))
            return aggregates.read_peer_log(kept, benchmark, *sizes, where)
        kept = base.check_reference(kept, benchmark, where, ("split", "dialect", "template"), ROWS_DIGEST_FIELD)
        asked = {
            task: [{**row, "task": task} for row in found]
            for task, found in rows.read_evaluation_rows(benchmark).items()
            if task in ("forget", HOLDOUT)
        }
        membership = kept.get(MEMBERSHIP_FIELD) if HOLDOUT in asked else None
        known = {"forget": kept[ROWS_DIGEST_FIELD], HOLDOUT: membership and membership["rows_digest"]}
        for task, found in asked.items():
            if known[task] is not None and known[task] != _digest(found, task):
                raise InputError(f"{where} was made on other {task} rows than {benchmark.data} holds")
        ratios = np.array(kept[RATIOS_FIELD], dtype=np.float64)
        return Reference(ratios, membership["aucs"], membership["losses"]) if membership else Reference(ratios)


def _metrics(benchmark: Benchmark, records: Records, reference: Reference | None) -> Metrics:
    """Return every number of an evaluation, those that peers make of several measures included."""
    found = aggregates.aggregate_metrics(records, benchmark.dialect, None if reference is None else reference.ratios)
    asked = measures.average_measures(benchmark, records)
    return found | aggregates.derive_combined_metrics(found | asked, reference, aggregates.EPSILONS[benchmark.dialect])


def _digest(records: Records, task: str) -> str:
    return hash_json([[row["question"], row["answer"]] for row in records if row["task"] == task])
