"""Questions asked by lm-eval of a live model: its task definitions, its prompts, its scores.

A folder can stand in for the hub. Only the definitions beside a task's own are read: all of them take half a minute.
"""

import copy
import difflib
import importlib.util
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from trainables.benchmarks.base import Metrics, Records
from trainables.common import typed_paths
from trainables.common.errors import InputError, TrialDiverged, first_error_line, suggest_name
from trainables.config.settings import LABELS_PER_CHUNK
from trainables.data import raw_rows
from trainables.inference.progress import ProgressCounter

ACCURACY_FIELD = "acc,none"
MMLU, MMLU_DEFINITIONS_FOLDER, MMLU_HUB_ID = "mmlu", "mmlu/default", "cais/mmlu"
MMLU_SPLITS = ("test", "dev")
"""The files of a subject of MMLU: lm-eval reads the worked examples also where it shows none."""
FILE_SPLITS = ("train", "validation", "test", "dev")
TASK_NAME_PATTERN = re.compile(rb"""^["']?(task|group|class)["']?:[ \t]*["']?([^\s"'#\[{]+)""", re.MULTILINE)
"""A definition's name in its YAML file: members of a group are below an empty `task:`; a class has both names."""


@cache
def _definitions(folder: str) -> Any:
    import lm_eval.tasks

    place = Path(lm_eval.tasks.__file__).parent / folder
    return lm_eval.tasks.TaskManager(include_path=place, include_defaults=False)


def check_task_names(names: Sequence[str]) -> None:
    """Raise InputError on a task that lm-eval does not define: of its groups mmlu alone is taken."""
    for name in names:
        if name == MMLU or name in map_task_names_to_files():
            continue
        near = ", ".join(f"'{found}'" for found in difflib.get_close_matches(name, [MMLU, *map_task_names_to_files()]))
        hint = f"did you mean {near}?" if near else "see 'python -m lm_eval ls tasks'"
        raise InputError(f"benchmark.tasks: lm-eval has no task '{name}' (of its groups, mmlu alone is taken); {hint}")


@cache
def map_task_names_to_files() -> Mapping[str, Path]:
    """Return the YAML file of every task that lm-eval defines, without importing it."""
    package = importlib.util.find_spec("lm_eval")
    found: dict[str, Path] = {}
    for file in (Path(str(package and package.origin)).parent / "tasks").rglob("*.yaml"):
        named = dict(TASK_NAME_PATTERN.findall(file.read_bytes()))
        if b"task" in named and (b"class" in named or b"group" not in named):
            found[named[b"task"].decode()] = file
    return found


def list_local_mmlu_subjects(place: str) -> list[str] | None:
    """Return the subjects of MMLU that a folder holds; None: the hub's, all of them."""
    if not raw_rows.check_if_local_folder(place, f"benchmark.sources {MMLU}"):
        return None
    found = sorted(path.name for path in typed_paths.expand_home(place).iterdir() if path.is_dir())
    if not found:
        raise InputError(f"benchmark.sources {MMLU}: {place} has no folder of a subject, such as virology/test.json")
    return found


def load_lm_eval_tasks(names: Sequence[str], places: Mapping[str, str], shots: int) -> list[Any]:
    """Return lm-eval's tasks. `places`: another folder or hub id for some; `shots`: worked examples of MMLU."""
    places = {MMLU: MMLU_HUB_ID, **places}
    return [_load_mmlu(places[MMLU], shots) if name == MMLU else _load_task(name, places.get(name)) for name in names]


def _load_mmlu(place: str, shots: int) -> Any:
    from lm_eval.api.group import Group
    from lm_eval.config.group import GroupConfig

    definitions, subjects = _definitions(MMLU_DEFINITIONS_FOLDER), list_local_mmlu_subjects(place)
    known = [name.removeprefix(f"{MMLU}_") for name in definitions.all_subtasks]
    for subject in subjects or ():
        if subject not in known:
            hint = suggest_name(subject, known)
            raise InputError(f"benchmark.sources {MMLU}: '{subject}' is no subject of MMLU; {hint}")
    members = [
        {"task": f"{MMLU}_{subject}", "num_fewshot": shots} | _place_settings(MMLU, place, subject)
        for subject in subjects or known
    ]
    aggregated = definitions.task_index[MMLU].cfg["aggregate_metric_list"]
    group = Group.from_config(GroupConfig(group=MMLU, aggregate_metric_list=aggregated))
    for task in _load(MMLU, definitions, members):
        group.add(task)
    return group


def _load_task(task: str, place: str | None) -> Any:
    """Return any task of lm-eval with its own number of worked examples. Raises InputError on a metric best low."""
    definitions, settings = _definitions(str(map_task_names_to_files()[task].parent)), {"task": task}
    if place is not None:
        settings |= _place_settings(task, place, definitions.task_index[task].cfg.get("dataset_name") or "")
    (loaded,) = _load(task, definitions, [settings])
    higher = loaded.higher_is_better()
    metric = "acc" if "acc" in higher else next(iter(higher))
    if not higher[metric]:
        raise InputError(f"benchmark.tasks: {task} is measured by its {metric}, which is best low; leave it out")
    return loaded


def _place_settings(task: str, place: str, config: str) -> dict[str, Any]:
    """Return a definition's data set as settings: another hub id, or a folder's FILE_SPLITS, maybe in `config`."""
    if not raw_rows.check_if_local_folder(place, f"benchmark.sources {task}"):
        return {"dataset_path": place}
    folder = typed_paths.expand_home(place)
    folder = folder / config if config and (folder / config).is_dir() else folder
    files = {split: str(file) for split in FILE_SPLITS if (file := raw_rows.find_data_file(folder, split)) is not None}
    if not files:
        known = ", ".join(FILE_SPLITS)
        raise InputError(f"benchmark.sources {task}: {folder} has none of {known}.json, .jsonl, .parquet")
    kind = "parquet" if next(iter(files.values())).endswith(".parquet") else "json"
    return {"dataset_path": kind, "dataset_name": None, "dataset_kwargs": {"data_files": files}}


def _load(task: str, definitions: Any, settings: list[dict[str, Any]]) -> list[Any]:
    """Return lm-eval's tasks with some settings replaced: members of a group may have their own."""
    try:
        return list(definitions.load([{"group": "asked", "task": settings}])["tasks"].values())
    except Exception as error:
        raise InputError(
            f"benchmark.sources: lm-eval cannot load the questions of {task}: {first_error_line(error)}. "
            "Without a network give a folder: --set benchmark.sources=PART=DIR"
        ) from error


def evaluate_lm_eval_tasks(
    network: Any, tokenizer: Any, tasks: Sequence[Any], *, limit: int | None, token_budget: int
) -> tuple[Metrics, Records]:
    """Return the accuracy of each task, else its first metric, its standard error and count of questions, and records.

    `limit`: the first so many questions of each task, and of each subject of MMLU. Rank 0 asks for all.
    """
    import lm_eval
    from lm_eval.models import huggingface

    from trainables.inference.passes import run_once_for_all_ranks

    def evaluate() -> tuple[Metrics, Records]:
        wrap: Any = huggingface.HFLM  # its decorators, and simple_evaluate's, hide the parameters from type checkers
        run: Any = lm_eval.simple_evaluate
        rows = max(1, min(token_budget, LABELS_PER_CHUNK) // 256)  # of so many tokens; lm-eval keeps all logits
        model = wrap(pretrained=network, tokenizer=copy.deepcopy(tokenizer), batch_size=rows)  # it adds a pad token
        found = run(model=model, tasks=list(tasks), limit=limit, task_manager=_definitions(MMLU_DEFINITIONS_FOLDER))
        values: Metrics = {}
        for name in (getattr(task, "task_name", None) or task.name for task in tasks):
            result = found["results"][name]
            metric, chosen = _primary_metric(result)
            error = result.get(f"{metric}_stderr,{chosen}", "N/A")
            values[name] = float(result[f"{metric},{chosen}"])
            values[f"{name}_stderr"] = None if error == "N/A" else float(error)
            values[f"{name}_questions"] = int(result["sample_len"])
        records = []
        for task, samples in sorted(found["samples"].items()):
            metric, chosen = _primary_metric(found["results"][task])
            records += [_record(task, metric, sample) for sample in samples if sample["filter"] == chosen]
        return values, records

    ProgressCounter("", 0)  # lm-eval reports no progress
    found, records = run_once_for_all_ranks(evaluate)
    if not all(math.isfinite(value) for row in records for value in row["log_likelihoods"]):
        raise TrialDiverged("evaluation: the log-likelihood of a choice is not finite")
    return found, records


def _primary_metric(result: Mapping[str, Any]) -> list[str]:
    """Return metric and filter of a task's result that count: the accuracy, or the first one."""
    names = [name for name in result if "," in name and "_stderr," not in name]
    return (ACCURACY_FIELD if ACCURACY_FIELD in names else names[0]).split(",")


def compute_mean_task_score(task: str, records: Records) -> float | None:
    """Return a task's metric from records of some of its questions; None where it is no mean over them."""
    # of MMLU its subjects, and not mmlu_pro's, whose names begin alike
    members = set(_definitions(MMLU_DEFINITIONS_FOLDER).all_subtasks) if task == MMLU else {task}
    scores = [row["score"] for row in records if row["task"] in members]
    return None if None in scores or not scores else sum(scores) / len(scores)


def _record(task: str, metric: str, sample: dict[str, Any]) -> dict[str, Any]:
    """Return a question's record: a digest for its text, hazardous in WMDP; `score` None where a metric is of all."""
    answers, target = sample["filtered_resps"], sample["target"]
    likelihoods = [float(answer[0]) for answer in answers if isinstance(answer, list | tuple)]
    score = float(sample[metric]) if isinstance(sample.get(metric), int | float) else None
    return {
        "task": task,
        "index": int(sample["doc_id"]),
        "digest": sample["doc_hash"],
        "target": int(target) if str(target).isdigit() else None,
        "log_likelihoods": likelihoods,
        "metric": metric,
        "score": score,
        "correct": bool(score) if score in (0, 1) else None,
    }
