"""TOFU's statistics against naive re-statements, SciPy, and the numbers of the published logs."""

import json
import math
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from trainables.benchmarks import metrics, tofu
from trainables.common.errors import TrialDiverged

LOGGED = {
    "retain": "eval_log.json",
    "forget": "eval_log_forget.json",
    "real_authors": "eval_real_author_wo_options.json",
    "world_facts": "eval_real_world_wo_options.json",
}
"""Our tasks and their files in the published logs."""

Records = list[dict[str, Any]]


def record(task: str, index: int, rouge: float, answer: float, right: float, wrong: list[float]) -> dict[str, Any]:
    """A row of `tokens` tokens each whose mean losses are the given ones."""
    tokens = index + 2
    return {
        "task": task,
        "index": index,
        "answer_loss": answer * tokens,
        "answer_tokens": tokens,
        "paraphrase_loss": right * tokens,
        "paraphrase_tokens": tokens,
        "perturbed_loss": [loss * (k + 1) for k, loss in enumerate(wrong)],
        "perturbed_tokens": [k + 1 for k in range(len(wrong))],
        "rougeL_recall": rouge,
    }


def invented(seed: int, rows: int = 9, forget_shift: float = 0.0) -> Records:
    """Rows of every task; `forget_shift` makes the forget rows' right answers less likely."""
    draw = np.random.default_rng(seed)
    found = []
    for task in ("forget", *metrics.MU_TASKS):
        for index in range(rows):
            answer, right, *wrong = draw.uniform(0.1, 3, 6).tolist()
            shift = forget_shift if task == "forget" else 0.0
            found.append(record(task, index, float(draw.uniform(0.1, 1)), answer, right + shift, wrong))
    return found


def logged(shared: Path, name: str) -> Records:
    """The published log of a model as our records."""
    file = shared / "data" / "tofu_reference_logs" / f"llama2-7b_{name}.json"
    if not file.is_file():
        pytest.skip("the shared data has no data/tofu_reference_logs")
    found, log = [], json.loads(file.read_text())["tasks"]
    names = {"gt_loss": "answer_loss", "num_token_gt": "answer_tokens"}
    names |= {"paraphrased_loss": "paraphrase_loss", "num_token_paraphrased": "paraphrase_tokens"}
    names |= {"perturb_loss": "perturbed_loss", "num_token_perturb": "perturbed_tokens"}
    for task, part in LOGGED.items():
        columns = {ours: log[part][theirs] for theirs, ours in (names | {"rougeL_recall": "rougeL_recall"}).items()}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        found += [{"task": task, "index": index, **row} for index, row in enumerate(rows)]
    return found


def exact_pvalue(unlearned: list[float], retained: list[float]) -> tuple[Fraction, float]:
    """P(D >= d) of the two-sample test by counting lattice paths, and d: both samples of n, without ties."""
    n = len(unlearned)
    distance = max(
        abs(sum(x <= at for x in unlearned) - sum(x <= at for x in retained)) for at in [*unlearned, *retained]
    )
    paths = [1] + [0] * n  # paths[j]: to (i, j), staying where |i - j| < distance
    for i in range(n + 1):
        for j in range(n + 1):
            below = paths[j] if i else int(j == 0)
            paths[j] = below + (paths[j - 1] if j else 0) if abs(i - j) < distance else 0
    return 1 - Fraction(paths[n], math.comb(2 * n, n)), distance / n


@pytest.mark.parametrize("rows", [5, 40, 200])
@pytest.mark.parametrize("shift", [0.0, 0.3, 50.0])
def test_forget_quality_is_the_exact_ks_test(rows: int, shift: float) -> None:
    draw = np.random.default_rng(rows)
    one, other = draw.normal(size=rows), draw.normal(size=rows) + shift
    found = metrics.forget_quality(one, other)
    pvalue, distance = exact_pvalue(one.tolist(), other.tolist())
    assert found["forget_quality_ks"] == pytest.approx(distance)
    assert found["forget_quality_pvalue"] == pytest.approx(float(pvalue), rel=1e-6)
    assert found["forget_quality"] == pytest.approx(math.log(pvalue.numerator) - math.log(pvalue.denominator), abs=1e-6)


@pytest.mark.parametrize(("rows", "apart"), [(7, 1), (60, 2), (135, 3), (200, 3)])
def test_forget_quality_near_p_1_is_exact_and_without_a_warning(rows: int, apart: int) -> None:
    """scipy's exact p is rounded to above 1 for all but the last, warns, and takes 0.99996 for the first."""
    one = np.arange(rows, dtype=np.float64)
    other = np.array(one + apart - 0.5, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = metrics.forget_quality(one, other)
    pvalue, distance = exact_pvalue(one.tolist(), other.tolist())
    assert found["forget_quality_ks"] == pytest.approx(distance)
    assert found["forget_quality_pvalue"] == pytest.approx(float(pvalue), abs=1e-14)


@pytest.mark.parametrize("dialect", ["paper", "open-unlearning"])
def test_aggregate_equals_a_naive_one(dialect: Any) -> None:
    records = invented(0)
    retained = tofu.aggregates.truth_ratios(invented(1), "forget", 0.0)
    found = tofu.aggregates.aggregate_metrics(records, dialect, retained)
    parts = {}
    for task in ("forget", *metrics.MU_TASKS):
        rows = [row for row in records if row["task"] == task]
        right = [math.exp(-row["answer_loss"] / row["answer_tokens"]) for row in rows]
        wrong = [
            [math.exp(-a / b) for a, b in zip(row["perturbed_loss"], row["perturbed_tokens"], strict=True)]
            for row in rows
        ]
        paraphrase = [math.exp(-row["paraphrase_loss"] / row["paraphrase_tokens"]) for row in rows]
        ratio = [math.prod(w) ** (1 / len(w)) / p for w, p in zip(wrong, paraphrase, strict=True)]
        if task in ("real_authors", "world_facts"):
            right = [p / (p + sum(w)) for p, w in zip(right, wrong, strict=True)]
        parts[f"{task}_prob"] = np.mean(right)
        parts[f"{task}_rouge"] = np.mean([row["rougeL_recall"] for row in rows])
        side = [min(r, 1 / r) for r in ratio] if task == "forget" else [max(0.0, 1 - r) for r in ratio]
        parts[f"{task}_truth_ratio"] = np.mean(side)
        if task == "forget":
            parts["forget_quality_pvalue"] = stats.ks_2samp(ratio, retained).pvalue  # type: ignore[attr-defined]
    for name, value in parts.items():
        assert found[name] == pytest.approx(value, rel=1e-8), name
    nine_of = [value for name, value in parts.items() if not name.startswith("forget")]
    assert found["model_utility"] == pytest.approx(9 / sum(1 / value for value in nine_of), rel=1e-8)
    assert found["forget_quality"] == pytest.approx(math.log(parts["forget_quality_pvalue"]))
    assert found["forget_rows"] == 9
    alone = tofu.aggregates.aggregate_metrics(records, dialect)
    assert found | dict.fromkeys(("forget_quality", "forget_quality_pvalue", "forget_quality_ks")) == alone


@pytest.mark.parametrize("field", ["answer_loss", "paraphrase_loss", "perturbed_loss"])
def test_losses_that_are_not_finite_stop_the_trial(field: str) -> None:
    for value in (math.nan, math.inf):
        records = invented(0)
        records[0][field] = [value] * len(records[0][field]) if field == "perturbed_loss" else value
        with pytest.raises(TrialDiverged, match="task 'forget' is not finite"):
            tofu.aggregates.aggregate_metrics(records, "paper")


@pytest.mark.parametrize("dialect", ["paper", "open-unlearning"])
def test_a_collapsed_model_still_has_numbers(dialect: Any) -> None:
    """Every answer at some 900 nats a token: exp(-900) is zero in float64, the ratios of such numbers are not."""
    records = invented(0)
    for row in records:
        row["answer_loss"] += 900 * row["answer_tokens"]
        row["paraphrase_loss"] += 900 * row["paraphrase_tokens"]
        row["perturbed_loss"] = [
            loss + 900 * tokens for loss, tokens in zip(row["perturbed_loss"], row["perturbed_tokens"], strict=True)
        ]
    found = tofu.aggregates.aggregate_metrics(
        records, dialect, tofu.aggregates.truth_ratios(invented(0), "forget", 0.0)
    )
    assert all(value is not None and math.isfinite(value) for value in found.values())
    assert found["model_utility"] == 0
    if dialect == "paper":
        assert found["forget_quality"] == pytest.approx(0, abs=1e-6)  # the same ratios as before


@pytest.mark.data
def test_numbers_of_the_published_logs(shared: Path) -> None:
    """The paper's Retrain rows (0.6006, 0.6137) to their last digit, FQ and every truth ratio."""
    logs = {name: logged(shared, name) for name in ("retain95", "retain90", "full")}
    retained = tofu.aggregates.truth_ratios(logs["retain90"], "forget", 0.0)
    found = {
        name: tofu.aggregates.aggregate_metrics(records, "paper", retained)
        for name, records in logs.items()
        if name != "retain95"
    }
    found["retain95"] = tofu.aggregates.aggregate_metrics(logs["retain95"], "paper")
    for name, utility in (("retain95", 0.6006), ("retain90", 0.6137), ("full", 0.6227)):
        assert found[name]["model_utility"] == pytest.approx(utility, abs=5e-5)
    assert found["full"]["forget_rows"] == 300
    assert found["full"]["forget_quality_pvalue"] == pytest.approx(1.834e-21, rel=5e-4)
    assert found["full"]["forget_quality_ks"] == pytest.approx(0.39667, abs=5e-6)
    assert found["full"]["forget_quality"] == pytest.approx(math.log(1.834e-21), abs=5e-4)
    log = json.loads((shared / "data" / "tofu_reference_logs" / "llama2-7b_full.json").read_text())["tasks"]
    for task, part in LOGGED.items():
        ratios = tofu.aggregates.truth_ratios(logs["full"], task, 0.0)
        assert ratios == pytest.approx(log[part]["truth_ratio"], rel=1e-5)


@pytest.mark.data
def test_rouge_of_the_published_generations(shared: Path) -> None:
    """Every row's recall, by the scorer of our own generations."""
    file = shared / "data" / "tofu_reference_logs" / "llama2-7b_retain90_generations.json"
    if not file.is_file():
        pytest.skip("the shared data has no data/tofu_reference_logs")
    log, compared, scorer = json.loads(file.read_text()), 0, metrics.make_rouge_scorer("rouge1", "rougeL")
    for part in LOGGED.values():
        for key, (_, text, answer) in log[part].items():
            for kind, score in scorer.score(answer, text).items():
                assert score.recall == pytest.approx(log[f"_{kind}_recall"][part][key], abs=1e-12)
                compared += 1
    assert compared == 2 * (300 + 300 + 100 + 117)
