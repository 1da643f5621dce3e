"""A person's own model and rows (row_files): no retain model, no published numbers.

A text is trained on in blocks of at most `training.max_length` tokens, a question with its answer as one row; 300 rows
of each set are measured, evenly spaced, 512 tokens of each. docs/measuring.md says what each number tells. A block's
`said` is its extraction strength, for nobody asks for a text; its `rouge` is of the second half after the first.
`..._known`: of how many rows `..._kept` is. `utility`: the harmonic mean of the shares kept, tasks' among them.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.benchmarks import base, lm_eval_adapter
from trainables.benchmarks.base import EvaluationSize, Examples, Goal, Metrics, Records, Row, TrainingSize
from trainables.benchmarks.own import facts, kept_answers, row_files, row_scores
from trainables.benchmarks.own.kept_answers import TARGET_SCORES_FIELD
from trainables.benchmarks.own.model_answers import ANSWER_TOKENS, ANSWERS_PART, TRAINED_TOKENS, use_model_answers
from trainables.common import fingerprints, typed_paths
from trainables.common.errors import InputError, suggest_name
from trainables.common.tokenized_row import Example
from trainables.common.wording import format_row_numbers
from trainables.config.settings import Benchmark
from trainables.data import raw_rows
from trainables.data.hub_folders import HubRequirement, find_hub_id_of_folder
from trainables.storage.atomic_files import check_folder_unchanged

OWN_SPLIT = OWN_DATA = "own"
"""There is one split, but for requests in a row, and no data set but the files in `benchmark.sources`."""
MIN_KNOWN_FORGET_SHARE = 0.1
"""The share of the forget rows below which a target model says too little for anything to be removed."""
REFERENCE_MATCH_FIELDS = ("fingerprint", "template", "limit", "tasks", "shots")
"""The settings that an evaluation and the target model's must share."""
ASSUMED_BYTES_PER_TOKEN, TEMPLATE_TOKENS_PER_ROW = 4, 16


class OwnBenchmark(base.BenchmarkBase):
    """Own rows: one split, no dialects, and nobody has a model that was trained without the rows to forget."""

    GOALS = (
        Goal("forget_said_any", "removal", "lowest", "said", "share of the forget rows still said, however asked"),
        Goal("utility", "retention", "highest", "utility", "harmonic mean of the shares that are kept"),
    )
    TAKES = ("sources", "shots", "tasks")
    REFERENCE = "original"
    SEQUENCE = row_files.REQUEST_PREFIX
    ASKS_BY_TEMPLATE = True

    def published_data_id(self, split: str) -> str:
        """Return OWN_DATA, no id of anything. Raises InputError if the split is another one."""
        if split != OWN_SPLIT and not row_files.is_request_name(split):
            raise InputError(f"benchmark.split: own has the one split '{OWN_SPLIT}', got '{split}'")
        return OWN_DATA

    def check_settings(self, benchmark: Benchmark) -> None:
        """Raise InputError if a setting is of another benchmark, a file is not named or a task is unknown."""
        if benchmark.data != self.published_data_id(benchmark.split):
            raise InputError("benchmark.data: own has no data set but files, forget=FILE and retain=FILE; leave it out")
        if benchmark.dialect != "paper":
            raise InputError("benchmark.dialect: own has no dialects; leave it out")
        super().check_settings(benchmark)
        lm_eval_adapter.check_task_names(benchmark.tasks)
        at = benchmark.places
        missing = [one for one in ("forget", "retain") if one not in at and (one == "forget" or ANSWERS_PART not in at)]
        if missing:
            wanted = ", ".join(f"{part}=FILE" for part in missing)
            evaluated = f"of trainables.evaluate: --source {missing[0]}=FILE"
            raise InputError(f"benchmark.sources: own needs {wanted} ({evaluated})")
        for part in at:
            if part not in (*row_files.list_row_parts(benchmark), ANSWERS_PART, *benchmark.tasks):
                hint = suggest_name(part, (*row_files.ROW_FILE_PARTS, *benchmark.tasks))
                raise InputError(f"benchmark.sources: '{part}' is neither rows nor a task of benchmark.tasks; {hint}")

    def check_rows(self, benchmark: Benchmark) -> None:
        """Raise InputError with all that is wrong in the files; `fingerprint` looks for the folders of tasks."""
        row_files.check_row_files(benchmark)

    def describe_odd_rows(self, benchmark: Benchmark) -> str | None:
        measured = row_files.read_evaluation_rows(benchmark)
        sets = [rows[: benchmark.limit] for name in kept_answers.SETS_TO_KEEP if (rows := measured[name])]
        few = min((len(rows) for rows in sets if not rows[0].is_text), default=math.inf)  # a text has many blocks
        advice = ""
        if all(row.neutral for rows in sets for row in rows):
            advice = "retain: no question that is to be kept is asked, so nothing tells whether neighbours of what is "
            advice += "forgotten are lost, too; give some as rows of `retain` or `eval`"
        elif (len(sets) + len(benchmark.tasks)) * (few - 1) < 9:  # the harmonic mean of shares, one of them 1 - 1 / few
            advice = f"too few rows ({few}) measure what is kept: with one lost it is below 90%; give ten or more"
        forget, _ = row_files.read_training_rows(benchmark)
        absent = [at for at, row in enumerate(forget, 1) if row.fact and not facts.mentions_fact(row.answer, row.fact)]
        unsaid = f"forget: the answer does not name the fact in {format_row_numbers(absent)}" if absent else ""
        return ". ".join(filter(None, [row_files.describe_overlap(benchmark), unsaid, advice])) or None

    def explain_nothing_to_remove(self, metrics: Metrics) -> str | None:
        known = metrics.get("forget_said_any")
        if known is None or known >= MIN_KNOWN_FORGET_SHARE:
            return None
        return f"nothing was there to remove, the target model says {known:.0%} of the rows to forget, however asked"

    def describe_outcome(self, metrics: Metrics, before: Metrics) -> str:
        """Return `14 of 40 forget rows are still said, however asked (40 before); 26 of 31 retain rows are kept`."""
        if metrics.get("forget_rows") is None or metrics.get("forget_said_any") is None:
            return ""
        now = f"{_count(metrics, 'forget_said_any', 'forget_rows')} forget rows are still said, however asked"
        if before.get("forget_rows"):
            now += f" ({_count(before, 'forget_said_any', 'forget_rows').partition(' of ')[0]} before)"
        parts = [
            f"{_count(metrics, f'{part}_kept', f'{part}_known').replace('%', '% of the words')} {part} rows"
            for part in kept_answers.SETS_TO_KEEP
            if f"{part}_kept" in metrics
        ]
        for name in filter(row_files.is_request_name, (key.removesuffix("_rows") for key in metrics)):
            now += f", {_count(metrics, f'{name}_said_any', f'{name}_rows')} of {name}"
        kept, said = (any(f"{name}_{one}" in metrics for name in kept_answers.SETS_TO_KEEP) for one in ("kept", "said"))
        unknown = ", and no question that is to be kept was asked" if kept and not said else ""
        return f"{now}; {' and '.join(parts)} are kept{unknown}" if parts else now

    def hub_requirements(self, benchmark: Benchmark) -> tuple[HubRequirement, ...]:
        """Return the questions that a person placed on the hub: lm-eval fetches all others itself."""
        placed = _task_places(benchmark).items()
        return tuple(each for task, place in placed for each in raw_rows.hub_requirements(place, None, task))

    def fingerprint(self, benchmark: Benchmark, *, training: bool = True) -> str:
        """Name what the files and the tasks' folders hold. Raises InputError if one holds no questions."""
        at = benchmark.places
        rows = {part: row_files.find_row_file(part, at[part]) for part in row_files.list_row_parts(benchmark)}
        marks = {part: fingerprints.hash_files([file]) for part, file in rows.items()}
        if ANSWERS_PART in at:
            check_folder_unchanged(Path(at[ANSWERS_PART]).parent, "retain=auto")
            marks[ANSWERS_PART] = Path(at[ANSWERS_PART]).parent.name  # a hash of what they are made from
        for task, place in _task_places(benchmark).items():
            field = f"benchmark.sources {task}"
            if not raw_rows.check_if_local_folder(place, field):
                marks[task] = find_hub_id_of_folder(place)
                continue
            if task == lm_eval_adapter.MMLU:
                lm_eval_adapter.list_local_mmlu_subjects(place)
            folder = typed_paths.expand_home(place)
            files = sorted(file for suffix in raw_rows.SUFFIXES for file in folder.rglob(f"*{suffix}"))
            if not files:
                raise InputError(f"{field}: {place} has no file of questions ({', '.join(raw_rows.SUFFIXES)})")
            marks[task] = fingerprints.hash_files(files)
        return "files:" + fingerprints.hash_json(marks)[:16]

    def estimate_training_size(self, benchmark: Benchmark, max_length: int) -> TrainingSize:
        """Estimate at four bytes a token; mean and longest are of the forget and of the retain rows."""
        rows = row_files.read_training_rows(benchmark)
        forget, retain = ([length for row in side for length in _lengths(row, max_length)] for side in rows)
        exact = not any(row.is_text for row in rows[0])
        both = [*forget, *retain]
        return TrainingSize(len(forget), sum(both) / len(both), max(both), exact)

    def estimate_evaluation_size(self, benchmark: Benchmark) -> EvaluationSize:
        """Bound what is read and, but for hold-out rows, generated of each set; what tasks ask is not counted."""
        read = generated = 0
        for name, rows in row_files.read_evaluation_rows(benchmark).items():
            lengths = [length for row in rows for length in _lengths(row, row_scores.MAX_BLOCK_LABELS)]
            items = min(len(lengths), benchmark.limit or row_scores.DEFAULT_ROW_LIMIT)
            read += items * max(lengths, default=0)
            if rows and name != row_scores.HOLDOUT_SET and not rows[0].neutral:
                longest = max(len(row.answer.encode()) for row in rows) // ASSUMED_BYTES_PER_TOKEN
                ways = 3 + max(len(row.paraphrases) for row in rows) if row_scores.is_forget_set(name) else 1
                generated += items * row_scores.compute_generation_limit(longest) * ways
                read += items * max(lengths, default=0) * ways  # the prompts
        return EvaluationSize(read, generated)

    def training_rows(self, benchmark: Benchmark) -> tuple[list[Row], list[Row]]:
        """Return the files' rows without what is not trained on."""
        forget, retain = (
            [{"text": row.answer} if row.is_text else {"question": row.asked, "answer": row.answer} for row in side]
            for side in row_files.read_training_rows(benchmark)
        )
        return forget, retain

    def training_examples(
        self,
        benchmark: Benchmark,
        tokenizer: Any,
        max_length: int,
        network: Any = None,
        token_budget: int = 4096,
        *,
        facts: bool = False,
    ) -> tuple[Examples, Examples]:
        """Return forget rows and retain rows as tokens, a text as its blocks; with `network`, in its own words.

        `facts`: of a question to forget the tokens of its fact are the labels alone, behind what the answer has, and
        `network` is asked the questions to retain only where those are balanced with its neutral answers.
        """
        _check_answers(benchmark)
        encoder = self.make_encoder(benchmark, tokenizer)
        forget, given = row_files.read_training_rows(benchmark)
        retain = row_files.balance_rows_with_model_answers(given)
        balanced, said = retain is not given, forget
        if network is not None:
            words = {"network": network, "encoder": encoder, "token_budget": token_budget}
            said = use_model_answers(forget, TRAINED_TOKENS if facts else ANSWER_TOKENS, **words)
            if balanced or not facts:
                retain = use_model_answers(retain, TRAINED_TOKENS if balanced else ANSWER_TOKENS, **words)
        sides: dict[str, list[Example]] = {"forget": [], "retain": []}
        for number, (row, own) in enumerate(zip(forget, said, strict=True), 1):
            where = f"forget: row {number}"
            if facts:
                sides["forget"] += row_scores.encode_row_with_fact_labels(encoder, own, row, where, max_length)
            else:
                sides["forget"] += row_scores.encode_row(encoder, own, where, max_length, max_length)
        for number, row in enumerate(retain, 1):
            sides["retain"] += row_scores.encode_row(encoder, row, f"retain: row {number}", max_length, max_length)
        return sides["forget"], sides["retain"]

    def check_rows_are_questions(self, benchmark: Benchmark) -> None:
        for number, row in enumerate(row_files.read_training_rows(benchmark)[0], 1):
            if row.is_text:
                raise InputError(f"forget: another answer needs a question, and row {number} is a text")

    def measure(
        self,
        network: Any,
        tokenizer: Any,
        benchmark: Benchmark,
        reference: Any,
        *,
        token_budget: int,
        most: int | None = None,
    ) -> tuple[Metrics, Records]:
        """Return every number, and a record a row, block or question, without its text or what the model said."""
        _check_answers(benchmark)
        tasks = lm_eval_adapter.load_lm_eval_tasks(benchmark.tasks, _task_places(benchmark), benchmark.shots)
        encoder = self.make_encoder(benchmark, tokenizer)
        records = row_scores.score_rows(network, encoder, benchmark, token_budget=token_budget, most=most)
        scores: Metrics = {}
        if tasks:
            settings = {"limit": benchmark.limit, "token_budget": token_budget}
            scores, answered = lm_eval_adapter.evaluate_lm_eval_tasks(network, tokenizer, tasks, **settings)
            records += answered
        if reference == base.TARGET_IS_OWN_REFERENCE:
            reference = self.make_reference_document(benchmark, records) | scores
        if reference is not None:
            kept_answers.add_kept_shares(records, reference[TARGET_SCORES_FIELD])
        found = row_scores.aggregate_metrics(benchmark, records) | scores
        return found | {"utility": kept_answers.compute_kept_utility(found, reference, benchmark.tasks)}, records

    def measure_some_rows(self, *model: Any, **settings: Any) -> tuple[Metrics, Records]:
        """Return what `measure` does, of `most` of its rows: the target's answers to these are known."""
        return self.measure(*model, **settings)

    def half_metrics(self, benchmark: Benchmark, half: Records, reference: Any, which: int) -> Metrics:
        found = row_scores.aggregate_metrics(benchmark, half)
        found |= {task: lm_eval_adapter.compute_mean_task_score(task, half) for task in benchmark.tasks}
        if reference == base.TARGET_IS_OWN_REFERENCE:
            reference = found
        elif reference and (halves := reference.get("halves")):
            reference = reference | {task: halves[which][task] for task in benchmark.tasks}
        return found | {"utility": kept_answers.compute_kept_utility(found, reference, benchmark.tasks)}

    def utility_by_row(self, benchmark: Benchmark, records: Records) -> list[NDArray[np.float64]]:
        """Return what is kept of each row of each set: (n, 1). Empty with tasks, whose scores are lm-eval's."""
        if benchmark.tasks:
            return []
        known = [row for row in records if row.get("kept") is not None]
        found = ([[row["kept"]] for row in known if row["task"] == name] for name in kept_answers.SETS_TO_KEEP)
        return [np.array(rows) for rows in found if rows]

    def make_reference_document(self, benchmark: Benchmark, records: Records) -> dict[str, Any]:
        return {TARGET_SCORES_FIELD: kept_answers.list_target_scores(records)}

    def parse_reference(self, kept: Mapping[str, Any] | None, benchmark: Benchmark, where: str) -> Any:
        """Return the target model's evaluation. Raises InputError if it is of other rows."""
        return base.validate_reference_evaluation(kept, benchmark, where, REFERENCE_MATCH_FIELDS, TARGET_SCORES_FIELD)


def _count(metrics: Metrics, share: str, rows: str) -> str:
    """Return `14 of 40`, or a percentage of rows that count in part."""
    part, whole = float(metrics[share] or 0), int(metrics[rows] or 0)
    count = round(part * whole)
    return f"{count} of {whole}" if abs(count - part * whole) < 1e-6 else f"{part:.0%} of {whole}"


def _check_answers(benchmark: Benchmark) -> None:
    """Raise InputError if the model is to give rows to retain and has not."""
    if not row_files.are_model_answers_ready(benchmark):
        raise InputError("retain=auto: the model has not answered the neutral prompts; a start of the sweep asks it")


def _lengths(row: row_files.OwnRow, max_length: int) -> list[int]:
    """Return the tokens of each example that a row becomes, roughly."""
    size = math.ceil(len((row.answer + (row.question or "")).encode()) / ASSUMED_BYTES_PER_TOKEN)
    if row.question is not None:
        return [min(size + TEMPLATE_TOKENS_PER_ROW, max_length)]
    whole, rest = divmod(size, max_length)
    return [max_length] * whole + ([rest] if rest else [])


def _task_places(benchmark: Benchmark) -> dict[str, str]:
    """Return the folder or hub id of each task whose questions a person placed."""
    return {part: place for part, place in benchmark.places.items() if part in benchmark.tasks}
