"""TOFU (Maini et al., 2024): its rows, and its evaluation in two published dialects.

Where the two differ (reference: the paper's own repositories, and open-unlearning):

|                         | paper                              | open-unlearning                |
|-------------------------|------------------------------------|--------------------------------|
| rows of a task          | the first 300                      | all                            |
| answer tag ("Answer: ") | label: scored and to be generated  | prompt                         |
| generation              | greedy, 200 tokens with the prompt | greedy, 200 new tokens         |
| generated text          | as it comes                        | stripped                       |
| length of a scored row  | 200 tokens                         | 512 tokens                     |
| denominators            | as they are                        | + 1e-10                        |

Both: geometric truth ratio, ROUGE recall with the stemmer, natural logarithm of the KS p-value. The numbers are made of
the records of an evaluation in tofu_measures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainables.benchmarks import base, metrics, rouge_words
from trainables.benchmarks.base import (
    BenchmarkBase,
    EvaluationSize,
    Examples,
    Goal,
    Metrics,
    Records,
    Row,
    SizeEstimate,
)
from trainables.benchmarks.tofu_measures import GENERAL, GUARDS, UTILITY_COLUMNS, aggregate, row_values, truth_ratios
from trainables.common import typed_paths
from trainables.common.errors import InputError, closest
from trainables.config.ids import digest
from trainables.config.settings import Benchmark
from trainables.data import raw_rows
from trainables.data.prompts import encode_all, prompt_text, resolve_template

PUBLISHED_SPLITS = ("forget01", "forget05", "forget10")
RATIOS, ROWS_DIGEST = "forget_truth_ratios", "forget_rows_digest"
"""What a kept evaluation holds for forget quality: the ratios, and which rows they are of."""
GENERATED_TOKENS = 200
MEAN_TOKENS, LONGEST_TOKENS = 80, 256
"""Tokens of a row of TOFU (240 characters on average, 619 at most) with its template."""
OTHER_ROWS, ANSWERS = (400, 100, 117), 7
"""Rows of the tasks beside the forget rows, and the answers of a row that are scored."""
PERTURBED_COLUMNS = ("question", "answer", "paraphrased_answer", "perturbed_answer")
GENERAL_COLUMNS = ("question", "answer", "perturbed_answer")


@dataclass(frozen=True)
class Rules:
    """What a dialect does differently: a row of the table above. The defaults are the paper's."""

    row_limit: int | None = 300
    tag_is_answer: bool = True
    generated_includes_prompt: bool = True
    strip: bool = False
    max_length: int = 200


RULES: dict[str, Rules] = {
    "paper": Rules(),
    "open-unlearning": Rules(
        row_limit=None, tag_is_answer=False, generated_includes_prompt=False, strip=True, max_length=512
    ),
}


class TofuBenchmark(BenchmarkBase):
    """TOFU on a forget split."""

    GOALS = (
        Goal("forget_quality", "removal", "highest", "FQ", "forget quality (ln p)", digits=2),
        Goal("model_utility", "retention", "highest", "MU", "model utility"),
    )
    TARGET = "full"
    UTILITY_COLUMNS = UTILITY_COLUMNS

    def published_data(self, split: str) -> str:
        """Return the data set of all splits. Raises InputError if the split is no forget split."""
        _percentage(split)
        return "locuslab/TOFU"

    def retain_role(self, split: str) -> str | None:
        """Return the retain rows of a forget split, and the model trained on them: `forget05` -> `retain95`."""
        return f"retain{100 - _percentage(split):02d}"

    def training_configs(self, split: str) -> tuple[str, ...]:
        return split, f"retain{100 - _percentage(split):02d}"

    def evaluation_configs(self, split: str) -> tuple[str, ...]:
        return tuple(tasks(split).values())

    def check_rows(self, benchmark: Benchmark) -> None:
        if raw_rows.names_folder(benchmark.data):
            self.training_rows(benchmark)
            evaluation_rows(benchmark)
        elif benchmark.data == self.published_data(benchmark.split) and benchmark.split not in PUBLISHED_SPLITS:
            hint = closest(benchmark.split, PUBLISHED_SPLITS)
            raise InputError(f"benchmark.split: {benchmark.data} has no '{benchmark.split}'; {hint}")

    def shared_fingerprint(self, benchmark: Benchmark) -> str:
        shared = [config for task, config in tasks(benchmark.split).items() if task != "forget"]
        return raw_rows.fingerprint_rows(benchmark.data, shared, benchmark.revision)

    def forget_points(self, benchmark: Benchmark) -> int | None:
        return len(self.training_rows(benchmark)[0]) if typed_paths.is_folder(benchmark.data) else None

    def size_estimate(self, benchmark: Benchmark, max_length: int) -> SizeEstimate:
        points = self.forget_points(benchmark)
        if points is None and (match := re.fullmatch(r"forget([0-9]{2})", benchmark.split)):
            points = 40 * int(match[1])
        return SizeEstimate(points, min(MEAN_TOKENS, max_length), min(LONGEST_TOKENS, max_length))

    def evaluation_size(self, benchmark: Benchmark) -> EvaluationSize:
        """Count answers of MEAN_TOKENS with their question, and generations to their end."""
        limit = min(filter(None, (RULES[benchmark.dialect].row_limit, benchmark.limit)), default=None)
        sizes = (self.size_estimate(benchmark, MEAN_TOKENS).points or 0, *OTHER_ROWS)
        rows = sum(size if limit is None else min(size, limit) for size in sizes)
        return EvaluationSize(rows * ANSWERS * MEAN_TOKENS, rows * GENERATED_TOKENS)

    def training_rows(self, benchmark: Benchmark) -> tuple[list[Row], list[Row]]:
        columns = ("question", "answer")
        forget, retain = (
            raw_rows.load_rows(benchmark.data, config, columns, benchmark.revision)
            for config in self.training_configs(benchmark.split)
        )
        return forget, retain

    def training_examples(self, benchmark: Benchmark, tokenizer: Any, max_length: int) -> tuple[Examples, Examples]:
        forget, retain = self.training_rows(benchmark)
        settings = (benchmark.template, benchmark.dialect, max_length)
        return encode_rows(tokenizer, forget, *settings), encode_rows(tokenizer, retain, *settings)

    def measure(
        self, network: Any, tokenizer: Any, benchmark: Benchmark, reference: metrics.Array | None, *, token_budget: int
    ) -> tuple[Metrics, Records]:
        """Return every number, FQ against the retain model's truth ratios, and the per-row records."""
        records = evaluate(network, tokenizer, benchmark, token_budget=token_budget)
        return aggregate(records, benchmark.dialect, reference), records

    def half_metrics(
        self, benchmark: Benchmark, records: Records, reference: metrics.Array | None, which: int
    ) -> Metrics:
        ratios = None if reference is None else reference[which::2]
        return aggregate(base.every_other(records, which), benchmark.dialect, ratios)

    def utility_parts(self, benchmark: Benchmark, records: Records) -> list[metrics.Array]:
        """Return probability, ROUGE and truth ratio of each row of MU's three tasks: (n, 3) each."""
        guard = GUARDS[benchmark.dialect]
        return [np.column_stack(row_values(records, task, guard)) for task in metrics.TASKS]

    def reference_part(self, benchmark: Benchmark, records: Records) -> dict[str, Any]:
        """Return the truth ratios that FQ needs, and a digest of the rows they are of."""
        ratios = truth_ratios(records, "forget", GUARDS[benchmark.dialect]).tolist()
        asked = [[row["question"], row["answer"]] for row in records if row["task"] == "forget"]
        return {RATIOS: ratios, ROWS_DIGEST: digest(asked)}

    def read_reference(self, kept: Mapping[str, Any] | None, benchmark: Benchmark, where: str) -> metrics.Array:
        """Return the retain model's truth ratios. Raises InputError if split, dialect, template or rows differ."""
        kept = base.check_reference(kept, benchmark, where, ("split", "dialect", "template"), ROWS_DIGEST)
        asked = [[row["question"], row["answer"]] for row in evaluation_rows(benchmark)["forget"]]
        if kept[ROWS_DIGEST] != digest(asked):
            raise InputError(f"{where} was made on other forget rows than {benchmark.data} holds")
        return np.array(kept[RATIOS], dtype=np.float64)


def _percentage(split: str) -> int:
    """Return 5 of `forget05`. Raises InputError if the split is no forget split."""
    match = re.fullmatch(r"forget([0-9]{2})", split)
    if not match or not 0 < int(match[1]) < 100:
        raise InputError(f"benchmark.split: unknown split '{split}'; {closest(split, PUBLISHED_SPLITS)}")
    return int(match[1])


def tasks(split: str) -> dict[str, str]:
    """Return the data configuration of each evaluation task."""
    return {
        "forget": f"{split}_perturbed",
        "retain": "retain_perturbed",
        **{task: f"{task}_perturbed" for task in GENERAL},
    }


def encode_rows(tokenizer: Any, chosen: list[Row], template: str, dialect: str, max_length: int) -> Examples:
    """Return questions and answers as examples; the dialect says what of them is prompt."""
    pairs = [(row["question"], row["answer"]) for row in chosen]
    settings = {"max_length": max_length, "tag_is_answer": RULES[dialect].tag_is_answer}
    return encode_all(tokenizer, resolve_template(template, tokenizer), pairs, **settings)


def evaluation_rows(benchmark: Benchmark) -> dict[str, list[Row]]:
    """Return the rows of each task, as many as the dialect takes."""
    limit = min(filter(None, (RULES[benchmark.dialect].row_limit, benchmark.limit)), default=None)
    loaded = {}
    for task, config in tasks(benchmark.split).items():
        columns = GENERAL_COLUMNS if task in GENERAL else PERTURBED_COLUMNS
        loaded[task] = raw_rows.load_rows(benchmark.data, config, columns, benchmark.revision)[:limit]
    return loaded


def evaluate(network: Any, tokenizer: Any, benchmark: Benchmark, *, token_budget: int) -> Records:
    """Return a record a question: summed losses and token counts of every answer, the generation and its ROUGE."""
    from trainables.inference import greedy_answers, scoring
    from trainables.inference.padded_batch import pad_of

    rules, template = RULES[benchmark.dialect], resolve_template(benchmark.template, tokenizer)
    records, asked, prompts = [], [], []
    for task, questions in evaluation_rows(benchmark).items():
        for index, row in enumerate(questions):
            right = row["paraphrased_answer"] if "paraphrased_answer" in row else row["answer"]
            answers = [row["answer"], right, *row["perturbed_answer"]]
            asked.append([(row["question"], answer) for answer in answers])
            prompts.append(prompt_text(template, row["question"], tag_is_answer=rules.tag_is_answer))
            records.append({"task": task, "index": index, "question": row["question"], "answer": row["answer"]})
    settings = {"max_length": rules.max_length, "tag_is_answer": rules.tag_is_answer}
    encoded = iter(encode_all(tokenizer, template, [pair for pairs in asked for pair in pairs], **settings))
    groups, pad = [[next(encoded) for _ in pairs] for pairs in asked], pad_of(tokenizer)
    scores = scoring.score_labels(network, groups, pad=pad, token_budget=token_budget)
    texts = greedy_answers.generate(
        network,
        tokenizer,
        prompts,
        token_budget=token_budget,
        new_tokens=GENERATED_TOKENS,
        total=rules.generated_includes_prompt,
        scored=[(group[0], answers[0].hits) for group, answers in zip(groups, scores, strict=True)],
    )
    counts = [[example.answer_tokens for example in group] for group in groups]
    return _with_results(records, [[one.total_loss for one in answers] for answers in scores], counts, texts, rules)


def _with_results(
    records: Records, losses: list[list[float]], counts: list[list[int]], texts: list[str], rules: Rules
) -> Records:
    scorer = rouge_words.scorer("rouge1", "rougeL")
    for record, text, lost, tokens in zip(records, texts, losses, counts, strict=True):
        text = text.strip() if rules.strip else text
        overlap = scorer.score(record["answer"], text)
        record |= {
            "generation": text,
            "answer_loss": lost[0],
            "answer_tokens": tokens[0],
            "paraphrase_loss": lost[1],
            "paraphrase_tokens": tokens[1],
            "perturbed_loss": lost[2:],
            "perturbed_tokens": tokens[2:],
            "rouge1_recall": overlap["rouge1"].recall,
            "rougeL_recall": overlap["rougeL"].recall,
        }
    return records
