"""Multiple-choice questions asked by lm-eval of a live model: its task definitions, its prompts, its scores.

A folder can stand in for the hub: the definition stays lm-eval's, its data set is then the folder's file. Only the
definitions of WMDP and MMLU are looked through, which takes a tenth of a second; all of lm-eval's take half a minute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from trainables import rows
from trainables.benchmarks import Metrics, Records
from trainables.errors import InputError, closest

ACCURACY, ERROR = "acc,none", "acc_stderr,none"
PROMPT_TOKENS = 256
"""A question's length when a batch is sized: so many fit a pass's budget of tokens."""
MMLU = "mmlu"
SPLITS = ("test", "dev")
"""Of a subject of MMLU: lm-eval reads the worked examples also where it shows none."""


@cache
def _definitions() -> Any:
    import lm_eval.tasks

    folder = Path(lm_eval.tasks.__file__).parent
    return lm_eval.tasks.TaskManager(include_path=[folder / "wmdp", folder / MMLU / "default"], include_defaults=False)


def one(task: str, place: str, config: str) -> Any:
    """lm-eval's task on the rows of `place`: its own hub id, another one, or a folder with CONFIG/test."""
    (made,) = _made([_settings(task, place, config, ("test",), 0)])
    return made


def mmlu(place: str, subjects: Sequence[str] | None, shots: int) -> Any:
    """lm-eval's MMLU, the mean over all questions. `subjects`: those of a folder; None: all of them, from the hub."""
    from lm_eval.api.group import Group
    from lm_eval.config.group import GroupConfig

    known = [name.removeprefix(f"{MMLU}_") for name in _definitions().all_subtasks if name.startswith(f"{MMLU}_")]
    for subject in subjects or ():
        if subject not in known:
            raise InputError(f"benchmark.sources mmlu: '{subject}' is no subject of MMLU; {closest(subject, known)}")
    group = Group.from_config(
        GroupConfig(group=MMLU, aggregate_metric_list=_definitions().task_index[MMLU].cfg["aggregate_metric_list"])
    )
    for task in _made([_settings(f"{MMLU}_{subject}", place, subject, SPLITS, shots) for subject in subjects or known]):
        group.add(task)
    return group


def ask(
    network: Any, tokenizer: Any, tasks: Sequence[Any], *, limit: int | None, token_budget: int
) -> tuple[Metrics, Records]:
    """Accuracy, its standard error (none of a single question) and the questions of each of `tasks`; a record each.

    `limit`: the first so many questions of each task, of each subject for MMLU.
    """
    import lm_eval
    from lm_eval.models import huggingface

    wrap: Any = huggingface.HFLM  # its decorators, and evaluate's, hide the parameters from type checkers
    evaluate: Any = lm_eval.simple_evaluate
    asked = wrap(pretrained=network, tokenizer=tokenizer, batch_size=max(1, token_budget // PROMPT_TOKENS))
    found = evaluate(model=asked, tasks=list(tasks), limit=limit, task_manager=_definitions())
    told: Metrics = {}
    for name in (getattr(task, "task_name", None) or task.name for task in tasks):
        result = found["results"][name]
        told[name] = float(result[ACCURACY])
        told[f"{name}_stderr"] = None if result[ERROR] == "N/A" else float(result[ERROR])
        told[f"{name}_questions"] = int(result["sample_len"])
    samples = sorted(found["samples"].items())
    return told, [_record(task, sample) for task, answered in samples for sample in answered]


def _made(settings: list[dict[str, Any]]) -> list[Any]:
    """lm-eval's tasks with some settings replaced: members of a group may have their own."""
    try:
        return list(_definitions().load([{"group": "asked", "task": settings}])["tasks"].values())
    except Exception as error:
        first = (str(error).splitlines() or [repr(error)])[0]
        raise InputError(
            f"benchmark.sources: lm-eval cannot load the questions of {settings[0]['task']}: {first}. Without a "
            "network give folders: --set benchmark.sources=wmdp=DIR,mmlu=DIR"
        ) from error


def _settings(task: str, place: str, config: str, splits: Sequence[str], shots: int) -> dict[str, Any]:
    changed: dict[str, Any] = {"task": task, "num_fewshot": shots}
    if not rows.is_folder(place):
        return changed | {"dataset_path": place}
    files = {split: rows.file_of(Path(place).expanduser(), f"{config}/{split}") for split in splits}
    kind = "parquet" if files["test"].suffix == ".parquet" else "json"
    named = {split: str(file) for split, file in files.items()}
    return changed | {"dataset_path": kind, "dataset_name": None, "dataset_kwargs": {"data_files": named}}


def _record(task: str, sample: dict[str, Any]) -> dict[str, Any]:
    """A question's outcome: the digest of its text and not the text, which is hazardous in WMDP."""
    likelihoods = [float(value) for value, _ in sample["filtered_resps"]]
    return {
        "task": task,
        "index": int(sample["doc_id"]),
        "digest": sample["doc_hash"],
        "target": int(sample["target"]),
        "log_likelihoods": likelihoods,
        "correct": bool(sample["acc"]),
        "finite": all(math.isfinite(value) for value in likelihoods),
    }
