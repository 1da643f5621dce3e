"""TOFU's rows, and what its two published dialects do with them: the paper's own repositories, and open-unlearning.

Both: geometric truth ratio, ROUGE recall with the stemmer, natural logarithm of the KS p-value.
"""

import re
from dataclasses import dataclass

from trainables.benchmarks import measures
from trainables.benchmarks.base import Row
from trainables.benchmarks.measures import ALL, HOLDOUT_SET
from trainables.benchmarks.tofu.aggregates import FACT_TASKS
from trainables.common import typed_paths
from trainables.common.errors import InputError, suggest_name
from trainables.config.settings import Benchmark
from trainables.data import raw_rows

PUBLISHED_SPLITS = ("forget01", "forget05", "forget10")
PLAIN_COLUMNS = ("question", "answer")
GENERAL_COLUMNS = (*PLAIN_COLUMNS, "perturbed_answer")


@dataclass(frozen=True)
class DialectRules:
    """What a dialect does differently. The defaults are the paper's."""

    row_limit: int | None = 300  # the first rows of a task
    tag_is_answer: bool = True  # an answer tag ("Answer: ") is label, scored and to be generated; else prompt
    generated_includes_prompt: bool = True  # 200 tokens with the prompt, else 200 new ones; greedy
    strip: bool = False  # the generated text
    max_length: int = 200  # tokens of a scored row
    whole_tail: bool = False  # labels: all behind an answer, and one end-of-sequence token more


RULES: dict[str, DialectRules] = {
    "paper": DialectRules(),
    "open-unlearning": DialectRules(
        row_limit=None,
        tag_is_answer=False,
        generated_includes_prompt=False,
        strip=True,
        max_length=512,
        whole_tail=True,
    ),
}


def parse_forget_percentage(split: str) -> int:
    """Return 5 of `forget05`. Raises InputError if the split is no forget split."""
    match = re.fullmatch(r"forget([0-9]{2})", split)
    if not match or not 0 < int(match[1]) < 100:
        raise InputError(f"benchmark.split: unknown split '{split}'; {suggest_name(split, PUBLISHED_SPLITS)}")
    return int(match[1])


def needs_holdout(benchmark: Benchmark) -> bool:
    """Return whether a measure of membership is asked for."""
    return any(measure.membership for measure in measures.list_requested_measures(benchmark).values())


def map_tasks_to_configs(benchmark: Benchmark) -> dict[str, str]:
    """Return the data configuration of each evaluation task, hold-out rows last where membership is asked for."""
    found = {"forget": f"{benchmark.split}_perturbed"} | {task: f"{task}_perturbed" for task in ("retain", *FACT_TASKS)}
    if not needs_holdout(benchmark):
        return found
    config = benchmark.holdout or f"holdout{parse_forget_percentage(benchmark.split):02d}"
    optional = benchmark.measures == (ALL,) and not benchmark.holdout and typed_paths.is_folder(benchmark.data)
    if optional and raw_rows.find_data_file(typed_paths.expand_home(benchmark.data), config) is None:
        return found
    return {**found, HOLDOUT_SET: config}


def read_evaluation_rows(benchmark: Benchmark) -> dict[str, list[Row]]:
    """Return the rows of each task, as many as the dialect takes. Raises InputError where one is no text."""
    limit = min(filter(None, (RULES[benchmark.dialect].row_limit, benchmark.limit)), default=None)
    loaded = {}
    columns_of = {HOLDOUT_SET: PLAIN_COLUMNS} | dict.fromkeys(FACT_TASKS, GENERAL_COLUMNS)
    for task, config in map_tasks_to_configs(benchmark).items():
        columns = columns_of.get(task, (*GENERAL_COLUMNS, "paraphrased_answer"))
        loaded[task] = raw_rows.load_rows(benchmark.data, config, columns, benchmark.revision)[:limit]
        count = None  # of a row's texts
        for number, row in enumerate(loaded[task], 1):
            wrong = row.get("perturbed_answer", [])
            texts = [row[name] for name in columns if name != "perturbed_answer"]
            texts += wrong if isinstance(wrong, list) else [None]
            count = count or len(texts)
            if len(texts) != count or not all(isinstance(text, str) for text in texts):
                where = f"benchmark.data: row {number} of {config}"
                raise InputError(f"{where}: write texts, as many in each perturbed_answer")
    return loaded
