"""A person's own model and rows (trainables.benchmarks.own_rows): no retain model, no published numbers.

Training: a text is cut into consecutive blocks of at most `training.max_length` tokens, and nothing of it is lost; a
question with its answer is one row by `benchmark.template`, cut there. Evaluation: blocks of 512 tokens and 512 tokens
of an answer, at most 300 rows of each set, evenly spaced over it (`benchmark.limit` says another number, and that of
the first questions of a task).

Of each set, `forget`, `paraphrase` (where there are such rows) and `retain`, the mean over its rows of:

- `{set}_extraction_strength`, `{set}_exact_memorisation`: teacher-forced (trainables.benchmarks.metrics), without the
  end token;
- `{set}_rouge`: ROUGE-L recall with the stemmer of greedy generation: of the answer, 200 tokens; of a block of a text,
  its second half of tokens after the first half. Words are of any script (own_measures.Words);
- `{set}_prob`: exp(-mean loss) of the tokens of an answer with its end token, or of a block.

`membership_loss_auc` and `membership_min_k_auc` (Min-40 %, of the same tokens) are given where there are hold-out rows:
the AUC of telling forget rows from them by the model's losses. 1: forget rows look like members of the training set;
0.5: they cannot be told apart; below: they stand out as unlikely.

`{task}`: a task of lm-eval (`benchmark.tasks`), the accuracy or else its first metric; `benchmark.shots` are MMLU's.
`utility` is the harmonic mean of the four retain numbers and of the tasks', 0 where one of them is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.benchmarks import (
    Examples,
    Extent,
    Goal,
    Metrics,
    Records,
    every_other,
    lm_eval_questions,
    own_measures,
    own_rows,
)
from trainables.common import hashing, paths
from trainables.common.errors import InputError, TrialStopped, closest
from trainables.common.tokens import Example
from trainables.config.ids import digest
from trainables.config.settings import Benchmark
from trainables.data import prompts, rows, text_blocks
from trainables.data.hub import HubRequirement, hub_id_of

TARGET = "target"
GOALS = (
    Goal("forget_extraction_strength", "removal", "lowest", "ES", "extraction strength on the forget rows"),
    Goal("utility", "retention", "highest", "utility", "utility on the retain rows"),
)
SPLIT = DATA = "own"
"""There is one split, and in the place of a data set's id stands a word: the files are in `benchmark.sources`."""
TEMPLATE = "plain"
FETCHED = "hub:"
"""In front of a task's name: where its own questions lie that were fetched from the hub; no choice of a person's."""
BYTES_PER_TOKEN, TEMPLATE_TOKENS = 4, 16
"""As a rule of thumb, for plans."""


def published_data(split: str) -> str:
    """No id of anything: see DATA. Raises InputError."""
    if split != SPLIT:
        raise InputError(f"benchmark.split: own has the one split '{SPLIT}', got '{split}'")
    return DATA


def retain_role(split: str) -> None:
    """Nobody has a model that was trained without the rows to forget."""
    return


def check(benchmark: Benchmark) -> None:
    """Raise InputError where a setting is of another benchmark, a file is not named or a task is unknown."""
    if benchmark.data != published_data(benchmark.split):
        raise InputError("benchmark.data: own has no data set but files, forget=FILE and retain=FILE; leave it out")
    if benchmark.dialect != "paper":
        raise InputError("benchmark.dialect: own has no dialects; leave it out")
    lm_eval_questions.check_shots(benchmark.shots)
    lm_eval_questions.check_names(benchmark.tasks)
    at = own_rows.places(benchmark)
    missing = [part for part in own_rows.REQUIRED if part not in at]
    if missing:
        wanted = ", ".join(f"{part}=FILE" for part in missing)
        raise InputError(f"benchmark.sources: own needs {wanted} (of trainables.evaluate: --source {missing[0]}=FILE)")
    for part in at:
        if part.removeprefix(FETCHED) not in (*own_rows.FILES, *benchmark.tasks):
            hint = closest(part, (*own_rows.FILES, *benchmark.tasks))
            raise InputError(f"benchmark.sources: '{part}' is neither rows nor a task of benchmark.tasks; {hint}")


def check_rows(benchmark: Benchmark) -> None:
    """Raise InputError with all that is wrong in the files, or where the folder of a task is none."""
    own_rows.check(benchmark)
    for task, place in _task_places(benchmark).items():
        _folder(task, place)


def hub_requirements(benchmark: Benchmark) -> tuple[HubRequirement, ...]:
    """The questions of tasks that come from the hub: from lm-eval's own place, or from another one."""
    at, found = _task_places(benchmark), []
    for task in benchmark.tasks:
        setting, holds = f"benchmark.sources={task}=DIR", (f"the files of {task}'s questions",)
        if task in at:
            found.append(HubRequirement("datasets", at[task], None, task, setting, holds))
        else:
            found.append(HubRequirement("tasks", task, None, FETCHED + task, setting, holds))
    return tuple(one for one in found if not paths.is_folder(one.id))


def fingerprint(benchmark: Benchmark) -> str:
    """What the files and the tasks' folders hold."""
    at = own_rows.places(benchmark)
    held = {part: own_rows.fingerprint(part, at[part]) for part in own_rows.FILES if part in at}
    for task, place in _task_places(benchmark).items():
        files = _folder(task, place)
        held[task] = hub_id_of(place) if files is None else hashing.of_files(files)
    return "files:" + digest(held)[:16]


def evaluation_fingerprint(benchmark: Benchmark) -> str:
    """An evaluation reads all files."""
    return fingerprint(benchmark)


def shared_fingerprint(benchmark: Benchmark) -> str:
    """There is one split."""
    return fingerprint(benchmark)


def forget_points(benchmark: Benchmark) -> int | None:
    """The questions, where there are no texts: their blocks are not known before a tokenizer has cut them."""
    forget, _ = own_rows.training(benchmark)
    return None if any(row.is_text for row in forget) else len(forget)


def extent(benchmark: Benchmark, max_length: int) -> Extent:
    """Rows of training to forget, and the longest of these and of the retain rows, at four bytes a token."""
    forget, retain = (
        [length for row in side for length in _lengths(row, max_length)] for side in own_rows.training(benchmark)
    )
    return Extent(len(forget), sum(forget) / len(forget), max(*forget, *retain))


def training_rows(benchmark: Benchmark) -> tuple[list[rows.Row], list[rows.Row]]:
    """The files' rows without what is not trained on."""
    forget, retain = (
        [{"text": row.answer} if row.is_text else {"question": row.question, "answer": row.answer} for row in side]
        for side in own_rows.training(benchmark)
    )
    return forget, retain


def training_examples(benchmark: Benchmark, tokenizer: Any, max_length: int) -> tuple[Examples, Examples]:
    """Forget rows and retain rows as tokens, a text as its blocks."""
    template = prompts.resolve(benchmark.template, tokenizer)
    forget, retain = (
        [
            example
            for number, row in enumerate(side, 1)
            for example in _encode(tokenizer, template, row, max_length, f"{part}: row {number}")
        ]
        for part, side in zip(own_rows.REQUIRED, own_rows.training(benchmark), strict=True)
    )
    return forget, retain


def measure(
    network: Any, tokenizer: Any, benchmark: Benchmark, reference: None, *, token_budget: int
) -> tuple[Metrics, Records]:
    """Every number, and a record a row, block or question, without its text or what the model said.

    Raises TrialStopped where a loss or a log-likelihood is not finite.
    """
    with rows.told_as("benchmark.sources"):
        fetched = {part.removeprefix(FETCHED): place for part, place in own_rows.places(benchmark).items()}
        tasks = lm_eval_questions.chosen(benchmark.tasks, fetched | _task_places(benchmark), benchmark.shots)
    template = prompts.resolve(benchmark.template, tokenizer)
    records = own_measures.of_rows(
        network, tokenizer, template, own_rows.evaluated(benchmark), limit=benchmark.limit, token_budget=token_budget
    )
    asked: Metrics = {}
    if tasks:
        asked, answered = lm_eval_questions.ask(
            network, tokenizer, tasks, limit=benchmark.limit, token_budget=token_budget
        )
        if not all(row["finite"] for row in answered):
            raise TrialStopped("diverged", "evaluation: the log-likelihood of a choice is not finite")
        records += answered
    found = own_measures.aggregate(records) | asked
    found["utility"] = own_measures.utility(found, benchmark.tasks)
    columns = dict.fromkeys(name for row in records for name in row)
    return found, [columns | row for row in records]


def half(benchmark: Benchmark, records: Records, reference: None, which: int) -> Metrics:
    """Every number of every other row, block or question."""
    chosen = every_other(records, which)
    found = own_measures.aggregate(chosen) | {
        task: lm_eval_questions.mean_score(task, chosen) for task in benchmark.tasks
    }
    return found | {"utility": own_measures.utility(found, benchmark.tasks)}


UTILITY_COLUMNS = tuple(own_measures.NUMBERS.values())


def utility_parts(benchmark: Benchmark, records: Records) -> list[NDArray[np.float64]]:
    """The four numbers of each retain row: (n, 4). Empty with tasks, whose scores are lm-eval's."""
    if benchmark.tasks:
        return []
    return [np.array([[row[name] for name in UTILITY_COLUMNS] for row in records if row["task"] == "retain"])]


def kept(benchmark: Benchmark, records: Records) -> dict[str, Any]:
    """Nothing: no other model is measured against this one."""
    return {}


def reference(kept: Mapping[str, Any] | None, benchmark: Benchmark, where: str) -> None:
    """Own rows have none. Raises InputError."""
    raise InputError(f"{where}: own has no retain model to be measured against; leave it out")


def _encode(
    tokenizer: Any, template: prompts.Template, row: own_rows.Row, max_length: int, where: str
) -> list[Example]:
    if row.question is None:
        return text_blocks.blocks(tokenizer, row.answer, max_length, where)
    encoded = prompts.encode(tokenizer, template, row.question, row.answer, max_length=max_length, tag_is_answer=False)
    return [encoded]


def _lengths(row: own_rows.Row, max_length: int) -> list[int]:
    """Tokens of each example that a row becomes, roughly."""
    size = math.ceil(len((row.answer + (row.question or "")).encode()) / BYTES_PER_TOKEN)
    if row.question is not None:
        return [min(size + TEMPLATE_TOKENS, max_length)]
    whole, rest = divmod(size, max_length)
    return [max_length] * whole + ([rest] if rest else [])


def _task_places(benchmark: Benchmark) -> dict[str, str]:
    """Where the questions of tasks are that lm-eval's own place is not wanted for."""
    given = own_rows.places(benchmark).items()
    return {part: place for part, place in given if part not in own_rows.FILES and not part.startswith(FETCHED)}


def _folder(task: str, place: str) -> list[Path] | None:
    """The files of a task's folder; None: a hub id."""
    with rows.told_as(f"benchmark.sources {task}"):
        if not rows.is_folder(place):
            return None
        if task == lm_eval_questions.MMLU:
            lm_eval_questions.subjects(place)
    found = sorted(file for suffix in rows.SUFFIXES for file in paths.expand(place).rglob(f"*{suffix}"))
    if not found:
        raise InputError(f"benchmark.sources {task}: {place} has no file of questions ({', '.join(rows.SUFFIXES)})")
    return found
