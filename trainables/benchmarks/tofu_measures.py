"""TOFU's numbers from the records of an evaluation: nothing here knows a model or where the rows lie."""

from __future__ import annotations

import numpy as np

from trainables.benchmarks import metrics
from trainables.benchmarks.base import Metrics, Records
from trainables.common.errors import TrialStopped
from trainables.config.settings import Dialect

GENERAL = ("real_authors", "world_facts")
"""Tasks whose answers are weighed against wrong ones."""
GUARDS: dict[Dialect, float] = {"paper": 0.0, "open-unlearning": metrics.OPEN_UNLEARNING_GUARD}
"""What a dialect adds to denominators."""
UTILITY_COLUMNS = ("answer_loss", "answer_tokens", "paraphrase_loss", "paraphrase_tokens")
UTILITY_COLUMNS += ("perturbed_loss", "perturbed_tokens", "rougeL_recall")


def truth_ratios(records: Records, task: str, guard: float) -> metrics.Array:
    """R of each row of a task, in order: (n,)."""
    chosen = [record for record in records if record["task"] == task]
    correct = np.array([row["paraphrase_loss"] / row["paraphrase_tokens"] for row in chosen])
    return metrics.truth_ratio(correct, _wrong(chosen), guard)


def utility_parts(records: Records, dialect: Dialect) -> list[metrics.Array]:
    """Probability, ROUGE and truth ratio of each row of MU's three tasks: (n, 3) each."""
    guard, parts = GUARDS[dialect], []
    for task in metrics.TASKS:
        chosen = [record for record in records if record["task"] == task]
        loss = np.array([row["answer_loss"] / row["answer_tokens"] for row in chosen])
        prob = metrics.choice_shares(loss, _wrong(chosen), guard) if task in GENERAL else np.exp(-loss)
        truth = np.maximum(0.0, 1.0 - truth_ratios(records, task, guard))
        parts.append(np.column_stack((prob, [row["rougeL_recall"] for row in chosen], truth)))
    return parts


def aggregate(records: Records, dialect: Dialect, retain_ratios: metrics.Array | None = None) -> Metrics:
    """Every number of an evaluation from its per-row records; `retain_ratios`: the retain model's on the forget rows.

    Raises TrialStopped where a loss is not finite: the model has diverged.
    """
    guard = GUARDS[dialect]
    found: dict[str, float] = {}
    for task in ("forget", *metrics.TASKS):
        chosen = [record for record in records if record["task"] == task]
        loss = np.array([row["answer_loss"] / row["answer_tokens"] for row in chosen])
        right = np.array([row["paraphrase_loss"] for row in chosen])
        wrong = _wrong(chosen)
        if not all(np.isfinite(values).all() for values in (loss, right, wrong)):
            raise TrialStopped("diverged", f"evaluation: the loss of an answer of task '{task}' is not finite")
        ratio = truth_ratios(records, task, guard)
        choice = metrics.choice_probability(loss, wrong, guard)
        found[f"{task}_prob"] = choice if task in GENERAL else metrics.probability(loss)
        found[f"{task}_rouge"] = float(np.mean([row["rougeL_recall"] for row in chosen]))
        found[f"{task}_truth_ratio"] = (
            metrics.forget_side(ratio, guard) if task == "forget" else metrics.utility_side(ratio)
        )
    result: Metrics = {"model_utility": metrics.model_utility(found), **found}
    result["forget_rows"] = sum(record["task"] == "forget" for record in records)
    return result | _quality(records, retain_ratios, guard)


def _quality(records: Records, retain_ratios: metrics.Array | None, guard: float) -> dict[str, float | None]:
    if retain_ratios is None:
        return dict.fromkeys(("forget_quality", "forget_quality_pvalue", "forget_quality_ks"))
    quality = metrics.forget_quality(truth_ratios(records, "forget", guard), retain_ratios)
    return {
        "forget_quality": quality.log_pvalue,
        "forget_quality_pvalue": quality.pvalue,
        "forget_quality_ks": quality.distance,
    }


def _wrong(chosen: Records) -> metrics.Array:
    """Mean losses of the wrong answers: (n, k)."""
    return np.array(
        [
            [loss / tokens for loss, tokens in zip(row["perturbed_loss"], row["perturbed_tokens"], strict=True)]
            for row in chosen
        ]
    )
