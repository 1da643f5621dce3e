"""A retain log of open-unlearning in the place of our own retain evaluation: its numbers, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from tests.support.starts import invoke
from trainables import evaluate

Log = dict[str, Any]


@pytest.fixture(scope="module")
def data(trial_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = shutil.copytree(trial_inputs.data, tmp_path_factory.mktemp("logs") / "data")
    rows = [json.loads(line) for line in (folder / "forget25_perturbed.json").read_text().splitlines()]
    unseen = [{"question": row["question"], "answer": row["perturbed_answer"][0]} for row in rows]
    (folder / "holdout25.json").write_text("\n".join(map(json.dumps, unseen)))
    return folder


def run(data: Path, model: Any, output: Path, *more: object, dialect: str = "open-unlearning") -> Any:
    words = ("--model", model, "--data", data, "--split", "forget25", "--output", output, "--limit", 6)
    return invoke(evaluate.main, *words, "--dialect", dialect, *more)


def make_log(kept: Log) -> Log:
    """Return the part of open-unlearning's TOFU_EVAL.json that is read, of the model that a kept evaluation is of."""

    def part(values: list[float]) -> Log:
        return {"value_by_index": {str(index): {"score": value} for index, value in enumerate(values)}}

    membership = kept["membership"]
    sides = {task: part(losses) for task, losses in membership["losses"].items()}
    log = {"forget_truth_ratio": part(kept["forget_truth_ratios"])}
    for name in ("loss", "zlib", "min_k", "min_k_plus_plus"):
        log[f"mia_{name}"] = {"agg_value": membership["aucs"][f"membership_{name}_auc"], **sides}
    return log


@pytest.fixture(scope="module")
def written(trial_inputs: Any, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the retain model's evaluation and log, and the target model's against either."""
    folder, every = tmp_path_factory.mktemp("written"), ("--measures", "all")
    assert run(data, trial_inputs.retain, folder / "retain.json", *every).exit_code == 0
    (folder / "log.json").write_text(json.dumps(make_log(read(folder, "retain.json"))))
    for name, against in (("full", "retain"), ("theirs", "log")):
        words = (*every, "--retain-evaluation", folder / f"{against}.json")
        assert run(data, trial_inputs.target, folder / f"{name}.json", *words).exit_code == 0
    return folder


def read(folder: Path, name: str) -> Log:
    return json.loads((folder / name).read_text())


def test_theirs_gives_what_ours_gives(written: Path) -> None:
    ours, theirs = (
        {k: v for k, v in read(written, name).items() if isinstance(v, float)} for name in ("full.json", "theirs.json")
    )
    assert theirs == pytest.approx(ours)
    assert ours.keys() >= {"forget_quality", "privleak", "privacy_score", "membership_reference_auc"}


def test_a_retain_log_gives_open_unlearnings_numbers(written: Path) -> None:
    """Its ks_test and privleak, as its src/evals/metrics/privacy.py computes them from two logs."""
    found, log = read(written, "theirs.json"), read(written, "log.json")
    retained = [row["score"] for row in log["forget_truth_ratio"]["value_by_index"].values()]
    compared: Any = stats.ks_2samp(found["forget_truth_ratios"], retained)
    assert found["forget_quality_pvalue"] == compared.pvalue
    kept, reference = 1 - found["membership_min_k_auc"], 1 - log["mia_min_k"]["agg_value"]
    assert found["privleak"] == pytest.approx((kept - reference) / (reference + 1e-10) * 100)


def drop_row(part: Log) -> None:
    part["value_by_index"].popitem()


@pytest.mark.parametrize(
    ("change", "more", "dialect", "words"),
    [
        (lambda log: None, (), "paper", "is open-unlearning's: it goes with its dialect"),
        (
            lambda log: drop_row(log["mia_loss"]["holdout"]),
            ("--measures", "all"),
            "open-unlearning",
            "it has 5, this evaluation 6",
        ),
        (
            lambda log: drop_row(log["forget_truth_ratio"]),
            (),
            "open-unlearning",
            "is of 5 forget rows, forget25 has 6",
        ),
        (
            lambda log: log["forget_truth_ratio"].clear(),
            (),
            "open-unlearning",
            "is no TOFU_EVAL.json of open-unlearning: KeyError('value_by_index')",
        ),
    ],
)
def test_what_is_refused(
    change: Any, more: Any, dialect: str, words: str, trial_inputs: Any, data: Path, written: Path, tmp_path: Path
) -> None:
    log = read(written, "log.json")
    change(log)
    (tmp_path / "log.json").write_text(json.dumps(log))
    against = ("--retain-evaluation", tmp_path / "log.json")
    done = run(data, trial_inputs.target, tmp_path / "out", *more, *against, dialect=dialect)
    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
