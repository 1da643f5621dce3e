"""TOFU's numbers from the records of an evaluation: nothing here knows a model or where the rows lie."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trainables.benchmarks import metrics
from trainables.benchmarks.base import Metrics, Records
from trainables.benchmarks.measures import HOLDOUT_SET
from trainables.common.errors import InputError, TrialDiverged
from trainables.config.settings import Benchmark, Dialect

FACT_TASKS = ("real_authors", "world_facts")
EPSILON_BY_DIALECT: dict[Dialect, float] = {"paper": 0.0, "open-unlearning": metrics.OPEN_UNLEARNING_EPSILON}
MEMORISATION_METRICS = ("forget_extraction_strength", "forget_exact_memorisation")
MEMORISATION_METRICS += ("forget_paraphrase_prob", "forget_paraphrase_share")
MIN_K_METRIC = "membership_min_k_auc"
MEMBERSHIP_AUC_METRICS = ("membership_loss_auc", "membership_zlib_auc", MIN_K_METRIC, "membership_min_k_plus_plus_auc")
"""The metrics that open-unlearning's summaries of memorisation and of privacy are made of."""
OPEN_UNLEARNING_ATTACKS = ("loss", "zlib", "min_k", "min_k_plus_plus", "reference")
"""The attacks by which its retain log tells membership, `mia_NAME` there."""
COMBINED_METRICS = ("privleak", "privleak_reference", "memorisation_score", "privacy_score", "overall_score")


class Reference(NamedTuple):
    """What the retain model gave: truth ratios of the forget rows (n,), of membership AUCs and rows' mean losses."""

    ratios: metrics.Array
    aucs: Mapping[str, float] = {}
    losses: Mapping[str, Sequence[float]] = {}


def truth_ratios(records: Records, task: str, guard: float) -> metrics.Array:
    """Return R of each row of a task, in order: (n,)."""
    right, wrong = (mean_token_losses(records, task, kind) for kind in ("paraphrase", "perturbed"))
    return metrics.truth_ratio(right, wrong, guard)


def compute_row_scores(records: Records, task: str, guard: float) -> tuple[metrics.Array, metrics.Array, metrics.Array]:
    """Return probability, ROUGE and truth ratio of each row of a task as its metrics average them: (n,) each."""
    loss, wrong = mean_token_losses(records, task, "answer"), mean_token_losses(records, task, "perturbed")
    prob = metrics.compute_right_answer_shares(loss, wrong, guard) if task in FACT_TASKS else np.exp(-loss)
    rouge = np.array([row["rougeL_recall"] for row in records if row["task"] == task])
    ratio = truth_ratios(records, task, guard)
    truth = np.minimum(ratio, 1 / (ratio + guard)) if task == "forget" else np.maximum(0.0, 1.0 - ratio)
    return prob, rouge, truth


def aggregate_metrics(records: Records, dialect: Dialect, retain_ratios: metrics.Array | None = None) -> Metrics:
    """Return every number of an evaluation; `retain_ratios`: the retain model's. Raises TrialDiverged."""
    guard = EPSILON_BY_DIALECT[dialect]
    found: dict[str, float] = {}
    kinds = ("prob", "rouge", "truth_ratio")
    for task in ("forget", *metrics.MU_TASKS):
        losses = [mean_token_losses(records, task, kind) for kind in ("answer", "paraphrase", "perturbed")]
        if not all(np.isfinite(values).all() for values in losses):
            raise TrialDiverged(f"evaluation: the loss of an answer of task '{task}' is not finite")
        for kind, values in zip(kinds, compute_row_scores(records, task, guard), strict=True):
            found[f"{task}_{kind}"] = float(values.mean())
    utility = metrics.harmonic_mean([found[f"{task}_{kind}"] for task in metrics.MU_TASKS for kind in kinds])
    result: Metrics = {"model_utility": utility, **found}
    result["forget_rows"] = sum(record["task"] == "forget" for record in records)
    if retain_ratios is None:
        return result | dict.fromkeys(("forget_quality", "forget_quality_pvalue", "forget_quality_ks"))
    return result | metrics.forget_quality(truth_ratios(records, "forget", guard), retain_ratios)


def derive_open_unlearning_scores(found: Metrics, reference: Reference | None, guard: float) -> Metrics:
    """Return what peers make of several measures, as far as they were asked for: privleak, three scores of 0 to 1.

    privleak compares with the retain model's AUC, or with 0.5 without one. Harmonic means: `memorisation_score`
    of 1 - ES, EM, paraphrase probability and share; `privacy_score` of 1 - |AUC - retain model's| / retain model's, at
    least 0; `overall_score` of both and MU (Dorna et al., 2025, whose utility has the fluency of texts in it, too).
    """
    aucs, result = reference.aucs if reference else {}, Metrics()
    known = {name: float(value) for name, value in found.items() if value is not None}
    if MIN_K_METRIC in known and (reference is None or MIN_K_METRIC in aucs):
        result["privleak_reference"] = retained = 1.0 - aucs.get(MIN_K_METRIC, 0.5)
        result["privleak"] = metrics.privacy_leakage(1.0 - known[MIN_K_METRIC], retained, guard)
    scores = []
    if known.keys() >= set(MEMORISATION_METRICS):
        scores.append(metrics.harmonic_mean([1.0 - known[name] for name in MEMORISATION_METRICS]))
        result["memorisation_score"] = scores[-1]
    if known.keys() >= set(MEMBERSHIP_AUC_METRICS) and all(aucs.get(name) for name in MEMBERSHIP_AUC_METRICS):
        apart = [abs(known[name] - aucs[name]) / aucs[name] for name in MEMBERSHIP_AUC_METRICS]
        scores.append(metrics.harmonic_mean([1.0 - min(1.0, share) for share in apart]))
        result["privacy_score"] = scores[-1]
    if len(scores) == 2:
        result["overall_score"] = metrics.harmonic_mean([*scores, known["model_utility"]])
    return result


def mean_token_losses(records: Records, task: str, kind: str) -> metrics.Array:
    """Return the mean loss of a token of the answer, the paraphrase, (n,), or of the wrong answers, (n, k)."""
    chosen = [record for record in records if record["task"] == task]
    losses, tokens = (np.array([row[f"{kind}_{column}"] for row in chosen]) for column in ("loss", "tokens"))
    return losses / tokens


def parse_open_unlearning_log(
    kept: Mapping[str, Any], benchmark: Benchmark, rows: int, unseen: int, where: str
) -> Reference:
    """Return what open-unlearning's retain log, TOFU_EVAL.json of d3d7cf9, gives. Raises InputError for other rows.

    It says of which by their number: `rows` of the forget split, `unseen` hold-out rows (0: they are not asked for).
    """
    if benchmark.dialect != "open-unlearning":
        raise InputError(f"{where} is open-unlearning's: it goes with its dialect, this evaluation has the paper's")
    try:
        ratios = _read_scores(kept["forget_truth_ratio"])
        attacked = {name: kept[f"mia_{name}"] for name in OPEN_UNLEARNING_ATTACKS if unseen and f"mia_{name}" in kept}
        counts = {len(part[HOLDOUT_SET]["value_by_index"]) for part in attacked.values()} | {unseen}
        aucs = {f"membership_{name}_auc": float(part["agg_value"]) for name, part in attacked.items()}
        parts = attacked.get("loss", {})
        losses = {task: _read_scores(parts[task]) for task in ("forget", HOLDOUT_SET) if parts}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where} is no TOFU_EVAL.json of open-unlearning: {error!r}") from error
    if len(ratios) != rows:
        raise InputError(f"{where} is of {len(ratios)} forget rows, {benchmark.split} has {rows}")
    if len(counts) > 1:
        other = max(counts - {unseen})
        raise InputError(f"{where} is of other hold-out rows: it has {other}, this evaluation {unseen}")
    return Reference(np.array(ratios, dtype=np.float64), aucs, losses)


def _read_scores(part: Mapping[str, Any]) -> list[float]:
    """Return the rows' scores in the order of their numbers."""
    return [float(row["score"]) for _, row in sorted(part["value_by_index"].items(), key=lambda item: int(item[0]))]
