"""open-unlearning's files of an evaluation on TOFU: TOFU_EVAL.json, with every row, and TOFU_SUMMARY.json.

Its own code takes the first as a retain log; we take one that it wrote as `--retain-evaluation`. Names and nesting are
those of its commit d3d7cf9 (src/evals, configs/eval/tofu_metrics).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainables.benchmarks import metrics, rouge_words
from trainables.benchmarks.base import Metrics, Records
from trainables.benchmarks.measures import HOLDOUT
from trainables.benchmarks.tofu.aggregates import GENERAL, Reference, mean_loss, truth_ratios
from trainables.common.errors import InputError, closest
from trainables.config.settings import Benchmark
from trainables.data.conversations import Encoder
from trainables.storage import atomic_files

EVALUATION, SUMMARY = "TOFU_EVAL.json", "TOFU_SUMMARY.json"
OPEN_UNLEARNING = "open-unlearning"
PREFIXES = {"forget": "forget", "retain": "retain", "real_authors": "ra", "world_facts": "wf"}
TRUTH_RATIOS = {task: f"{prefix}_Truth_Ratio" for task, prefix in PREFIXES.items()} | {"forget": "forget_truth_ratio"}
"""Its names, which are not all spelled alike."""
MEMORISED = {"exact_memorization": "exact_memorisation", "extraction_strength": "extraction_strength"}
ATTACKS = {f"mia_{name}": f"membership_{name}" for name in ("loss", "zlib", "min_k", "min_k_plus_plus", "reference")}
SUMMARISED = (
    "forget_Q_A_Prob",
    "forget_Q_A_ROUGE",
    "forget_Q_A_PARA_ROUGE",
    "forget_truth_ratio",
    "forget_quality",
    "model_utility",
    "privleak",
)
Log = dict[str, Any]


def write_files(folder: Path, encoder: Encoder, records: Records, found: Metrics) -> None:
    """Write both files. They hold questions, answers and generations of the forget rows; the summary holds no text.

    `found`: the metrics of the records.
    """
    log = make_log(encoder, records, found)
    shown = (*SUMMARISED, *MEMORISED, *ATTACKS)
    summary = {name: log[name]["agg_value"] for name in shown if name in log}
    for name, document in ((EVALUATION, log), (SUMMARY, summary)):
        atomic_files.write_json(folder / name, document)  # as they are: `write_text` hides what looks like a secret


def check(form: str, benchmark: Benchmark) -> None:
    """Raise InputError if a `--format` is not open-unlearning's, or an evaluation none that it could have made."""
    if form != OPEN_UNLEARNING:
        raise InputError(f"--format: unknown format '{form}'; {closest(form, [OPEN_UNLEARNING])}")
    if benchmark.name != "tofu" or benchmark.dialect != OPEN_UNLEARNING:
        raise InputError(
            f"--format: open-unlearning's files are of TOFU in its dialect, not of {benchmark.name} in "
            f"'{benchmark.dialect}'; evaluate tofu with --dialect open-unlearning"
        )


def make_log(encoder: Encoder, records: Records, found: Metrics) -> Log:
    """Return TOFU_EVAL.json: each metric's aggregate and its rows by their number, where it was measured."""
    log: Log = {}
    for task, prefix in PREFIXES.items():
        rows = [row for row in records if row["task"] == task]
        for name, kind in (("Prob", "answer"), ("PARA_Prob", "paraphrase"), ("PERT_Prob", "perturbed")):
            if kind != "paraphrase" or task not in GENERAL:
                losses = mean_loss(records, task, kind)
                log[f"{prefix}_Q_A_{name}"] = _list_rows(
                    ({"prob": np.exp(-loss).tolist(), "avg_loss": loss.tolist()} for loss in losses),
                    np.exp(-losses).mean(),
                )
        if task in GENERAL:
            shares = metrics.choice_shares(
                mean_loss(records, task, "answer"), mean_loss(records, task, "perturbed"), metrics.OPEN_UNLEARNING_GUARD
            )
            log[f"{prefix}_Q_A_Prob_normalised"] = _list_rows(({"prob": one} for one in shares.tolist()), shares.mean())
        log[f"{prefix}_Q_A_ROUGE"] = _list_rows(
            (_describe_generation(row, encoder) for row in rows), found[f"{task}_rouge"]
        )
        if (overlap := found.get(f"{task}_paraphrase_rouge")) is not None:
            answers = (_describe_generation(row | {"answer": row["paraphrase"]}, encoder) for row in rows)
            log[f"{prefix}_Q_A_PARA_ROUGE"] = _list_rows(answers, overlap)
        ratios = truth_ratios(records, task, metrics.OPEN_UNLEARNING_GUARD)
        log[TRUTH_RATIOS[task]] = _list_rows(({"score": one} for one in ratios.tolist()), found[f"{task}_truth_ratio"])
    for name, ours in MEMORISED.items():
        if f"forget_{ours}" in found:
            scores = _scores(records, "forget", ours)
            log[name] = _list_rows(scores, found[f"forget_{ours}"])
    for name, ours in ATTACKS.items():
        if (area := found.get(f"{ours}_auc")) is not None:
            sides = {task: list(_scores(records, task, ours)) for task in ("forget", HOLDOUT)}
            parts = {task: _list_rows(rows, np.mean([row["score"] for row in rows])) for task, rows in sides.items()}
            log[name] = parts | {"auc": area, "agg_value": area}
    for name, ours in (("model_utility",) * 2, ("privleak",) * 2, ("forget_quality", "forget_quality_pvalue")):
        if found.get(ours) is not None:
            log[name] = {"agg_value": found[ours]}
    return log


def _list_rows(rows: Iterable[Log], aggregate: Any) -> Log:
    return {"agg_value": float(aggregate), "value_by_index": {str(index): row for index, row in enumerate(rows)}}


def _scores(records: Records, task: str, column: str) -> Iterable[Log]:
    return ({"score": row[column]} for row in records if row["task"] == task)


def _describe_generation(row: Mapping[str, Any], encoder: Encoder) -> Log:
    overlap = rouge_words.scorer("rouge1", "rougeL").score(row["answer"], row["generation"])
    return {
        "rouge1_recall": overlap["rouge1"].recall,
        "rougeL_f1": overlap["rougeL"].fmeasure,
        "rougeL_recall": overlap["rougeL"].recall,
        "input": encoder.render_prompt(row["question"]),
        "ground_truth": row["answer"],
        "generation": row["generation"],
    }


def is_log(kept: Mapping[str, Any] | None) -> bool:
    """Return whether a file is a TOFU_EVAL.json."""
    return isinstance((kept or {}).get("forget_truth_ratio"), dict)


def read_log(kept: Mapping[str, Any], benchmark: Benchmark, rows: int, unseen: int, where: str) -> Reference:
    """Return what a retain model's TOFU_EVAL.json gives. Raises InputError, led by `where`, if it is of other rows.

    The file says of which rows it is by their number alone: `rows` of the forget split, `unseen` hold-out rows (0: they
    are not asked for, and what the file has of them is left out).
    """
    if benchmark.dialect != OPEN_UNLEARNING:
        raise InputError(f"{where} is open-unlearning's: it goes with its dialect, this evaluation has the paper's")
    try:
        ratios = _read_scores(kept["forget_truth_ratio"])
        attacked = {ours: kept[name] for name, ours in ATTACKS.items() if unseen and name in kept}
        counts = {len(part[HOLDOUT]["value_by_index"]) for part in attacked.values()} | {unseen}
        aucs = {f"{ours}_auc": float(part["agg_value"]) for ours, part in attacked.items()}
        parts = attacked.get("membership_loss", {})
        losses = {task: _read_scores(parts[task]) for task in ("forget", HOLDOUT) if parts}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where} is no TOFU_EVAL.json of open-unlearning: {error!r}") from error
    if len(ratios) != rows:
        raise InputError(f"{where} is of {len(ratios)} forget rows, {benchmark.split} has {rows}")
    if len(counts) > 1:
        raise InputError(
            f"{where} is of other hold-out rows: it has {max(counts - {unseen})}, this evaluation {unseen}"
        )
    return Reference(np.array(ratios, dtype=np.float64), aucs, losses)


def _read_scores(part: Mapping[str, Any]) -> list[float]:
    """Return the rows' scores in the order of their numbers."""
    return [float(row["score"]) for _, row in sorted(part["value_by_index"].items(), key=lambda item: int(item[0]))]
