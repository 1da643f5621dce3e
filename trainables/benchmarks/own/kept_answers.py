"""What a model keeps of what the target model says of the rows to retain: a share of the target's own."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainables.benchmarks import metrics
from trainables.benchmarks.base import Metrics, Records

SETS_TO_KEEP = ("retain", "other")
"""Sets of rows that are to be kept: those that are trained on, if no others are measured for them, and others."""
TARGET_SCORES_FIELD = "target"
"""Where an evaluation keeps what the model says of each row."""
MIN_TARGET_SCORE = 0.1
"""What the target model must have of something, at least, for a share of it to say anything."""


def list_target_scores(records: Records) -> dict[str, Any]:
    """Return of each row to keep whether the target says it (None: it tells no fact), and its exact memorisation."""
    found: dict[str, Any] = {task: [] for task in SETS_TO_KEEP}
    for row in (row for row in records if row["task"] in SETS_TO_KEEP):
        found[row["task"]].append([None if row["is_text"] else row.get("said"), row["exact_memorisation"]])
    return found


def add_kept_shares(records: Records, target: Mapping[str, Any]) -> None:
    """Write `kept` into each record of a set that is to be kept; None where the target model has nothing to keep.

    Of a question that the target answers with its fact: whether this model does, too. Of a text, of the target's own
    answer to a neutral prompt, and of questions of which the target answers less than a tenth so: the share of the
    exact memorisation, at most 1.
    """
    for task in SETS_TO_KEEP:
        tells = _answers_tell(target[task])
        for row in (row for row in records if row["task"] == task):
            said, memorised = target[task][row["index"]]
            if said is not None and tells and "said" in row:
                row["kept"] = row["said"] if said else None
            else:
                row["kept"] = min(1.0, row["exact_memorisation"] / memorised) if memorised >= MIN_TARGET_SCORE else None


def compute_kept_utility(found: Metrics, target: Mapping[str, Any] | None, tasks: Sequence[str]) -> float | None:
    """Return the harmonic mean of the sets' shares and of the tasks' (at most 1) of the target's scores.

    A task below `MIN_TARGET_SCORE` there is left out. None: of an unknown target, no share, or a task without a score.
    """
    if target is None or any(None in (found[name], target[name]) for name in tasks):
        return None
    shares = [float(found[f"{name}_kept"] or 0) for name in SETS_TO_KEEP if f"{name}_kept" in found]
    shares += [min(1.0, float(found[name] or 0) / target[name]) for name in tasks if target[name] >= MIN_TARGET_SCORE]
    return round(metrics.harmonic_mean(shares), 12) if shares else None  # 18 of 20 kept are 0.9, no rounding below it


def explain_unmeasured_sets(evaluation: Mapping[str, Any]) -> list[str]:
    """Return of which sets and tasks a target model's answers cannot tell what is kept, why, and what to do."""
    scores, benchmark = evaluation.get("metrics", {}), evaluation.get("benchmark", {})
    scored = {name: score for name in benchmark.get("tasks", ()) if (score := scores.get(name)) is not None}
    found = [
        f"{name}: the target model scores {score:.2f}, below {MIN_TARGET_SCORE:g}: the utility leaves the task out"
        for name, score in scored.items()
        if score < MIN_TARGET_SCORE
    ]
    return found + [
        f"{name}: the target model answers less than {MIN_TARGET_SCORE:.0%} of the questions with their facts, so what "
        "is kept is measured by exact memorisation; if it phrases them otherwise, give `fact`, a list of ways to write "
        "it, or another benchmark.template"
        for name, rows in evaluation.get(TARGET_SCORES_FIELD, {}).items()
        if not _answers_tell(rows)
    ]


def _answers_tell(rows: Sequence[Sequence[float | None]]) -> bool:
    """Return whether a target model says the facts of a tenth of the questions, or there is none."""
    said = [number for number, _ in rows if number is not None]
    return sum(said) >= MIN_TARGET_SCORE * len(said)
