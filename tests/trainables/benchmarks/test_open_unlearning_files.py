"""open-unlearning's files of an evaluation: what we write it can read, and the other way round."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.support.starts import invoke
from trainables import evaluate

Log = dict[str, Any]
SUMMARY = "exact_memorization extraction_strength forget_Q_A_PARA_ROUGE forget_Q_A_Prob forget_Q_A_ROUGE"
SUMMARY += " forget_quality forget_truth_ratio mia_loss mia_min_k mia_min_k_plus_plus mia_reference mia_zlib"
SUMMARY += " model_utility privleak"
"""With a retain log and hold-out rows. mia_reference: against the retain log's losses."""
PARTS = [
    f"{task}_{kind}" for task in ("forget", "retain", "ra", "wf") for kind in ("Q_A_Prob", "Q_A_ROUGE", "Q_A_PERT_Prob")
]
PARTS += ["forget_Q_A_PARA_Prob", "retain_Q_A_PARA_Prob", "ra_Q_A_Prob_normalised", "wf_Q_A_Prob_normalised"]
PARTS += ["retain_Truth_Ratio", "ra_Truth_Ratio", "wf_Truth_Ratio"]


@pytest.fixture(scope="module")
def data(trial_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = shutil.copytree(trial_inputs.data, tmp_path_factory.mktemp("logs") / "data")
    rows = [json.loads(line) for line in (folder / "forget25_perturbed.json").read_text().splitlines()]
    unseen = [{"question": row["question"], "answer": row["perturbed_answer"][0]} for row in rows]
    (folder / "holdout25.json").write_text("\n".join(map(json.dumps, unseen)))
    return folder


def run(data: Path, model: Any, output: Path, *more: object, dialect: str = "open-unlearning") -> Any:
    words = (
        "--model",
        model,
        "--data",
        data,
        "--split",
        "forget25",
        "--output",
        output,
        "--dialect",
        dialect,
        "--limit",
        6,
    )
    return invoke(evaluate.main, *words, *more)


@pytest.fixture(scope="module")
def written(trial_inputs: Any, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the logs of the retain model and of the target model against it, and ours of both."""
    folder, form = tmp_path_factory.mktemp("written"), ("--format", "open-unlearning")
    assert run(data, trial_inputs.retain, folder / "retain", *form).exit_code == 0
    against = ("--retain-evaluation", folder / "retain" / "TOFU_EVAL.json")
    assert run(data, trial_inputs.target, folder / "full", *form, *against).exit_code == 0
    assert run(data, trial_inputs.retain, folder / "retain.json", "--measures", "all").exit_code == 0
    ours = ("--measures", "all", "--retain-evaluation", folder / "retain.json")
    assert run(data, trial_inputs.target, folder / "full.json", *ours).exit_code == 0
    assert run(data, trial_inputs.target, folder / "theirs.json", "--measures", "all", *against).exit_code == 0
    return folder


def read(folder: Path, name: str) -> Log:
    return json.loads((folder / name).read_text())


def scores(part: Log) -> list[float]:
    return [row["score"] for row in part["value_by_index"].values()]


def test_names_nesting_and_numbers(written: Path) -> None:
    log, summary, ours = (
        read(written, "full/TOFU_EVAL.json"),
        read(written, "full/TOFU_SUMMARY.json"),
        read(written, "full.json"),
    )
    assert sorted(summary) == SUMMARY.split()
    assert list(log) == sorted({*summary, *PARTS})
    assert {name: log[name]["agg_value"] for name in summary} == summary
    assert summary["forget_quality"] == ours["forget_quality_pvalue"]
    same = {"forget_Q_A_Prob": "forget_prob", "forget_Q_A_ROUGE": "forget_rouge", "mia_min_k": "membership_min_k_auc"}
    same |= {"forget_Q_A_PARA_ROUGE": "forget_paraphrase_rouge"}
    same |= {name: name for name in ("model_utility", "forget_truth_ratio", "privleak")}
    assert {name: summary[name] for name in same} == pytest.approx({name: ours[key] for name, key in same.items()})
    for name in (
        "forget_Q_A_Prob",
        "forget_Q_A_PARA_Prob",
        "extraction_strength",
        "retain_Q_A_ROUGE",
        "forget_Q_A_PARA_ROUGE",
    ):
        assert list(log[name]) == ["agg_value", "value_by_index"]
        rows = list(log[name]["value_by_index"].values())
        key = {"forget_Q_A_Prob": "prob", "forget_Q_A_PARA_Prob": "prob", "retain_Q_A_ROUGE": "rougeL_recall"}.get(
            name, "rougeL_recall" if "ROUGE" in name else "score"
        )
        assert log[name]["agg_value"] == pytest.approx(np.mean([row[key] for row in rows])), name
    asked, paraphrased = (log[f"forget_Q_A_{name}"]["value_by_index"]["3"] for name in ("ROUGE", "PARA_ROUGE"))
    assert (
        asked.keys()
        == paraphrased.keys()
        == {*("rouge1_recall", "rougeL_f1", "rougeL_recall", "input", "ground_truth", "generation")}
    )
    assert [paraphrased[name] == asked[name] for name in ("input", "generation", "ground_truth")] == [True, True, False]
    assert list(log["mia_zlib"]) == ["agg_value", "auc", "forget", "holdout"]
    assert log["mia_zlib"]["agg_value"] == log["mia_zlib"]["auc"]


def test_texts_are_written_as_they_are(
    trial_inputs: Any, data: Path, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word of an answer that is also a secret's value is no secret there."""
    log = read(written, "retain/TOFU_EVAL.json")
    answer = log["forget_Q_A_ROUGE"]["value_by_index"]["0"]["ground_truth"]
    monkeypatch.setenv("HF_TOKEN", max(answer.split(), key=len))
    assert run(data, trial_inputs.retain, tmp_path, "--format", "open-unlearning").exit_code == 0
    assert read(tmp_path, "TOFU_EVAL.json") == log


def test_a_retain_log_gives_open_unlearnings_numbers(written: Path) -> None:
    """Its ks_test and privleak, as its src/evals/metrics/privacy.py computes them from two logs."""
    log, retain = read(written, "full/TOFU_EVAL.json"), read(written, "retain/TOFU_EVAL.json")
    compared: Any = stats.ks_2samp(scores(log["forget_truth_ratio"]), scores(retain["forget_truth_ratio"]))
    assert log["forget_quality"]["agg_value"] == compared.pvalue
    kept, reference = 1 - log["mia_min_k"]["agg_value"], 1 - retain["mia_min_k"]["agg_value"]
    assert log["privleak"]["agg_value"] == pytest.approx((kept - reference) / (reference + 1e-10) * 100)
    assert "forget_quality" not in retain, "without a retain log"


def test_theirs_gives_what_ours_gives(written: Path) -> None:
    ours, theirs = (
        {k: v for k, v in read(written, name).items() if isinstance(v, float)} for name in ("full.json", "theirs.json")
    )
    assert theirs == pytest.approx(ours)
    assert ours.keys() >= {"forget_quality", "privleak", "privacy_score", "membership_reference_auc"}


def test_what_is_refused(trial_inputs: Any, data: Path, written: Path, tmp_path: Path) -> None:
    log = written / "retain" / "TOFU_EVAL.json"
    broken, short = read(written, "retain/TOFU_EVAL.json"), tmp_path / "short.json"
    broken["forget_truth_ratio"]["value_by_index"].popitem()
    short.write_text(json.dumps(broken))
    odd = tmp_path / "odd.json"
    odd.write_text(json.dumps({"forget_truth_ratio": {"agg_value": 0.5}}))
    log_of_others, other = read(written, "retain/TOFU_EVAL.json"), tmp_path / "other.json"
    log_of_others["mia_loss"]["holdout"]["value_by_index"].popitem()
    other.write_text(json.dumps(log_of_others))
    form = ("--format", "open-unlearning")
    for more, dialect, words in (
        (("--retain-evaluation", log), "paper", "is open-unlearning's: it goes with its dialect"),
        (("--retain-evaluation", other, "--measures", "all"), "open-unlearning", "it has 5, this evaluation 6"),
        (("--retain-evaluation", short), "open-unlearning", "is of 5 forget rows, forget25 has 6"),
        (
            ("--retain-evaluation", odd),
            "open-unlearning",
            "is no TOFU_EVAL.json of open-unlearning: KeyError('value_by_index')",
        ),
        (form, "paper", "open-unlearning's files are of TOFU in its dialect, not of tofu in 'paper'"),
        (
            ("--format", "openunlearning"),
            "open-unlearning",
            "unknown format 'openunlearning'; did you mean 'open-unlearning'?",
        ),
    ):
        done = run(data, trial_inputs.target, tmp_path / "out", *more, dialect=dialect)
        assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
