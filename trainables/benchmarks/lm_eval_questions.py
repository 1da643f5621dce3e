"""Questions asked by lm-eval of a live model: its task definitions, its prompts, its scores.

A folder can stand in for the hub: the definition stays lm-eval's, its data set is then the folder's file. Only the
definitions of WMDP and MMLU are looked through, which takes a tenth of a second; all of lm-eval's, which another task
needs, take half a minute. Its tasks' names alone are read from its files without importing it, which plans can do.
"""

from __future__ import annotations

import difflib
import importlib.util
import math
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from trainables.benchmarks.base import Metrics, Records
from trainables.common import paths
from trainables.common.errors import InputError, TrialStopped, closest
from trainables.data import rows
from trainables.inference.counting import Counter

ACCURACY = "acc,none"
"""lm-eval's name of a metric and of the filter of answers before it."""
PROMPT_TOKENS = 256
"""A question's length when a batch is sized: so many fit a pass's budget of tokens."""
MMLU, MMLU_HUB = "mmlu", "cais/mmlu"
SHOTS = 5
"""MMLU has as many worked examples a subject."""
WMDP = {"wmdp_bio": "wmdp-bio", "wmdp_cyber": "wmdp-cyber", "wmdp_chem": "wmdp-chem"}
"""lm-eval's task: the configuration of its data set."""
WMDP_HUB = "cais/wmdp"
SPLITS = ("test", "dev")
"""Of a subject of MMLU: lm-eval reads the worked examples also where it shows none."""
FILES = ("train", "validation", "test", "dev")
"""What a folder may hold for another task."""
NAMED = re.compile(rb"""^["']?(task|group|class)["']?:[ \t]*["']?([^\s"'#\[{]+)""", re.MULTILINE)
"""A definition's name in its YAML file: members of a group are below an empty `task:`; a class has both names."""


@cache
def _definitions(*, every: bool = False) -> Any:
    import lm_eval.tasks

    if every:
        return lm_eval.tasks.TaskManager()
    folder = Path(lm_eval.tasks.__file__).parent
    return lm_eval.tasks.TaskManager(include_path=[folder / "wmdp", folder / MMLU / "default"], include_defaults=False)


def check_shots(shots: int) -> None:
    """Refuse more worked examples than MMLU has."""
    if shots > SHOTS:
        raise InputError(f"benchmark.shots: MMLU has {SHOTS} worked examples a subject, got {shots}")


def check_names(names: Sequence[str]) -> None:
    """Refuse tasks that lm-eval does not define: of its groups mmlu alone is taken."""
    for name in names:
        if name == MMLU or any(name in _names(folder) for folder in _folders(name)):
            continue
        known = {MMLU}.union(*(_names(folder) for folder in _folders(name)))
        near = ", ".join(f"'{found}'" for found in difflib.get_close_matches(name, known))
        hint = f"did you mean {near}?" if near else "see 'python -m lm_eval ls tasks'"
        raise InputError(f"benchmark.tasks: lm-eval has no task '{name}' (of its groups, mmlu alone is taken); {hint}")


def _folders(name: str) -> list[Path]:
    """Of lm-eval's definitions; first those where a task of that name is likely."""
    found = importlib.util.find_spec("lm_eval")
    folders = (path for path in (Path(str(found and found.origin)).parent / "tasks").iterdir() if path.is_dir())
    return sorted(folders, key=lambda folder: (not name.startswith(folder.name), folder.name))


@cache
def _names(folder: Path) -> Mapping[str, Path]:
    """The tasks that the YAML files below `folder` define, with them: all of lm-eval's 14,000 take some 0.7 seconds."""
    found: dict[str, Path] = {}
    for at, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".yaml"):
                with open(os.path.join(at, name), "rb") as file:
                    named = dict(NAMED.findall(file.read()))
                if b"task" in named and (b"class" in named or b"group" not in named):
                    found[named[b"task"].decode()] = Path(at, name)
    return found


def source_of(task: str) -> tuple[str, str | None] | None:
    """The data set and its configuration that lm-eval asks for; None where it is more than that, and lm-eval's own."""
    if task == MMLU or task in WMDP:
        return (MMLU_HUB if task == MMLU else WMDP_HUB), None
    from lm_eval.tasks._yaml_loader import load_yaml

    file = next(_names(folder)[task] for folder in _folders(task) if task in _names(folder))
    settings = load_yaml(file, resolve_func=False)
    more = set(settings.get("dataset_kwargs") or ()) - {"trust_remote_code"}
    place = settings.get("dataset_path") or ""
    if more or settings.get("task") != task or {"class", "custom_dataset"} & settings.keys() or not place:
        return None
    return None if place in ("json", "parquet", "csv", "text") else (place, settings.get("dataset_name"))


def subjects(place: str) -> list[str] | None:
    """The subjects of MMLU that a folder holds; None: the hub's, all of them."""
    if not rows.is_folder(place):
        return None
    found = sorted(path.name for path in paths.expand(place).iterdir() if path.is_dir())
    if not found:
        raise InputError(f"benchmark.data: {place} has no folder of a subject, such as virology/test.json")
    return found


def chosen(names: Sequence[str], given: Mapping[str, str], shots: int) -> list[Any]:
    """lm-eval's tasks by their names. `given`: another folder or hub id for some; `shots`: MMLU's.

    Raises InputError where a name is unknown, or the metric that counts is best low.
    """
    check_names(names)
    found = []
    for name in names:
        if name == MMLU:
            at = given.get(name, MMLU_HUB)
            found.append(mmlu(at, subjects(at), shots))
        elif name in WMDP:
            found.append(one(name, given.get(name, WMDP_HUB), WMDP[name]))
        else:
            found.append(_named(name, given.get(name)))
    return found


def one(task: str, place: str, config: str) -> Any:
    """WMDP's task on the rows of `place`: its own hub id, another one, or a folder with CONFIG/test."""
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


def _named(task: str, place: str | None) -> Any:
    """Any task of lm-eval with its own number of worked examples; a folder has FILES of it."""
    changed: dict[str, Any] = {"task": task}
    if place is not None and rows.is_folder(place):
        folder = paths.expand(place)
        found = {split: rows.found(folder, split) for split in FILES}
        files = {split: file for split, file in found.items() if file is not None}
        if not files:
            raise InputError(f"benchmark.sources {task}: {place} has none of {', '.join(FILES)}.json, .jsonl, .parquet")
        changed |= _local(files)
    elif place is not None:
        changed["dataset_path"] = place
    (made,) = _made([changed], every=True)
    higher = made.higher_is_better()
    metric = "acc" if "acc" in higher else next(iter(higher))
    _check_best_high(task, metric, higher)
    return made


def _check_best_high(task: str, metric: str, higher: Mapping[str, bool]) -> None:
    if not higher[metric]:
        raise InputError(f"benchmark.tasks: {task} is measured by its {metric}, which is best low; leave it out")


def ask(
    network: Any, tokenizer: Any, tasks: Sequence[Any], *, limit: int | None, token_budget: int
) -> tuple[Metrics, Records]:
    """Accuracy, its standard error (none of a single question) and the questions of each of `tasks`; a record each.

    Of ranks that evaluate together the first one asks, and tells the others.

    A task without an accuracy tells its first metric. Raises InputError where that one is best low. `limit`: the first
    so many questions of each task, of each subject for MMLU. Raises TrialStopped if a log-likelihood is not finite.
    """
    from trainables.inference import parallel

    Counter("", 0)  # lm-eval reports no progress
    found, records = parallel.run_once(lambda: _ask(network, tokenizer, tasks, limit, token_budget))
    if not all(row["finite"] for row in records):
        raise TrialStopped("diverged", "evaluation: the log-likelihood of a choice is not finite")
    return found, records


def _ask(
    network: Any, tokenizer: Any, tasks: Sequence[Any], limit: int | None, token_budget: int
) -> tuple[Metrics, Records]:
    import lm_eval
    from lm_eval.models import huggingface

    wrap: Any = huggingface.HFLM  # its decorators, and evaluate's, hide the parameters from type checkers
    evaluate: Any = lm_eval.simple_evaluate
    asked = wrap(pretrained=network, tokenizer=tokenizer, batch_size=max(1, token_budget // PROMPT_TOKENS))
    found = evaluate(model=asked, tasks=list(tasks), limit=limit, task_manager=_definitions())
    told: Metrics = {}
    for name in (getattr(task, "task_name", None) or task.name for task in tasks):
        result = found["results"][name]
        metric, chosen = primary(result).split(",")
        _check_best_high(name, metric, found["higher_is_better"][name])
        error = result.get(f"{metric}_stderr,{chosen}", "N/A")
        told[name] = float(result[f"{metric},{chosen}"])
        told[f"{name}_stderr"] = None if error == "N/A" else float(error)
        told[f"{name}_questions"] = int(result["sample_len"])
    records = []
    for task, answered in sorted(found["samples"].items()):
        metric, chosen = primary(found["results"][task]).split(",")
        records += [_record(task, metric, sample) for sample in answered if sample["filter"] == chosen]
    return told, records


def mean_score(task: str, records: Records) -> float | None:
    """A task's metric from records of some of its questions; None where it is no mean over them."""
    of = (f"{MMLU}_",) if task == MMLU else ()
    scores = [row["score"] for row in records if row["task"] == task or row["task"].startswith(of)]
    return None if None in scores or not scores else sum(scores) / len(scores)


def primary(result: Mapping[str, Any]) -> str:
    """The metric of a task's result that counts: the accuracy, or the first one, `METRIC,FILTER`."""
    names = [name for name in result if "," in name and "_stderr," not in name]
    return ACCURACY if ACCURACY in names else names[0]


def _made(settings: list[dict[str, Any]], *, every: bool = False) -> list[Any]:
    """lm-eval's tasks with some settings replaced: members of a group may have their own."""
    try:
        return list(_definitions(every=every).load([{"group": "asked", "task": settings}])["tasks"].values())
    except Exception as error:
        first, task = (str(error).splitlines() or [repr(error)])[0], settings[0]["task"]
        advice = f"benchmark.sources={task}=DIR" if every else "benchmark.sources=wmdp=DIR,mmlu=DIR"
        raise InputError(
            f"benchmark.sources: lm-eval cannot load the questions of {task}: {first}. Without a network give folders: "
            f"--set {advice}"
        ) from error


def _settings(task: str, place: str, config: str, splits: Sequence[str], shots: int) -> dict[str, Any]:
    changed: dict[str, Any] = {"task": task, "num_fewshot": shots}
    if not rows.is_folder(place):
        return changed | {"dataset_path": place}
    return changed | _local({split: rows.file_of(paths.expand(place), f"{config}/{split}") for split in splits})


def _local(files: Mapping[str, Path]) -> dict[str, Any]:
    """A definition's data set, replaced by files of one kind."""
    kind = "parquet" if next(iter(files.values())).suffix == ".parquet" else "json"
    named = {split: str(file) for split, file in files.items()}
    return {"dataset_path": kind, "dataset_name": None, "dataset_kwargs": {"data_files": named}}


def _record(task: str, metric: str, sample: dict[str, Any]) -> dict[str, Any]:
    """A question's outcome: the digest of its text and not the text, which is hazardous in WMDP.

    Where the answer is generated there are no log-likelihoods; `target`: the right choice's number. `score`: of the
    task's metric, None where that is made of all questions together.
    """
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
        "finite": all(math.isfinite(value) for value in likelihoods),
    }
