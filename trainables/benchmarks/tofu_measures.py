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
    """Return R of each row of a task, in order: (n,)."""
    return metrics.truth_ratio(_mean_loss(records, task, "paraphrase"), _mean_loss(records, task, "perturbed"), guard)


def row_values(records: Records, task: str, guard: float) -> tuple[metrics.Array, metrics.Array, metrics.Array]:
    """Return probability, ROUGE and truth ratio of each row of a task as its metrics average them: (n,) each."""
    loss, wrong = _mean_loss(records, task, "answer"), _mean_loss(records, task, "perturbed")
    prob = metrics.choice_shares(loss, wrong, guard) if task in GENERAL else np.exp(-loss)
    rouge = np.array([row["rougeL_recall"] for row in records if row["task"] == task])
    ratio = truth_ratios(records, task, guard)
    truth = np.minimum(ratio, 1 / (ratio + guard)) if task == "forget" else np.maximum(0.0, 1.0 - ratio)
    return prob, rouge, truth


def aggregate(records: Records, dialect: Dialect, retain_ratios: metrics.Array | None = None) -> Metrics:
    """Return every number of an evaluation; `retain_ratios`: the retain model's on the forget rows.

    Raises TrialStopped where a loss is not finite: the model has diverged.
    """
    guard = GUARDS[dialect]
    found: dict[str, float] = {}
    for task in ("forget", *metrics.TASKS):
        losses = [_mean_loss(records, task, kind) for kind in ("answer", "paraphrase", "perturbed")]
        if not all(np.isfinite(values).all() for values in losses):
            raise TrialStopped("diverged", f"evaluation: the loss of an answer of task '{task}' is not finite")
        for kind, values in zip(("prob", "rouge", "truth_ratio"), row_values(records, task, guard), strict=True):
            found[f"{task}_{kind}"] = float(values.mean())
    result: Metrics = {"model_utility": metrics.model_utility(found), **found}
    result["forget_rows"] = sum(record["task"] == "forget" for record in records)
    if retain_ratios is None:
        return result | dict.fromkeys(("forget_quality", "forget_quality_pvalue", "forget_quality_ks"))
    return result | metrics.forget_quality(truth_ratios(records, "forget", guard), retain_ratios)


def _mean_loss(records: Records, task: str, kind: str) -> metrics.Array:
    """Return the mean loss of a token of the answer, the paraphrase, (n,), or of the wrong answers, (n, k)."""
    chosen = [record for record in records if record["task"] == task]
    losses, tokens = (np.array([row[f"{kind}_{column}"] for row in chosen]) for column in ("loss", "tokens"))
    return losses / tokens
