"""TOFU's measures on request: against a re-statement one row at a time, and against open-unlearning's own numbers."""

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rouge_score.rouge_scorer import RougeScorer
from scipy import stats
from sklearn.metrics import roc_auc_score

from tests.support.starts import invoke
from trainables import evaluate
from trainables.benchmarks import evaluation, metrics, tofu
from trainables.benchmarks.tofu import TofuBenchmark, aggregates
from trainables.config.settings import Benchmark, Model
from trainables.storage import atomic_files
from trainables.training import model_files

SPLIT, ROWS = "forget25", 15
OURS = {
    "exact_memorization": "forget_exact_memorisation",
    "extraction_strength": "forget_extraction_strength",
    "forget_Q_A_PARA_Prob": "forget_paraphrase_prob",
    "forget_Q_A_PARA_ROUGE": "forget_paraphrase_rouge",
    "forget_truth_ratio": "forget_truth_ratio",
    "mia_loss": "membership_loss_auc",
    "mia_zlib": "membership_zlib_auc",
    "mia_min_k": "membership_min_k_auc",
    "mia_min_k_plus_plus": "membership_min_k_plus_plus_auc",
    "privleak": "privleak",
}
"""open-unlearning's names of metrics, and ours."""
UTILITIES = {"retain95": 0.90538, "full": 0.89545}
COUNTS = {"forget": 200, "retain": 400, "real_authors": 100, "world_facts": 117}


@pytest.fixture(scope="module")
def data(trained_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return TOFU's files with hold-out rows, which are other authors' than the model's."""
    folder = shutil.copytree(trained_inputs.data, tmp_path_factory.mktemp("measures") / "data")
    rows = [json.loads(line) for line in (folder / "forget25_perturbed.json").read_text().splitlines()]
    unseen = [{"question": row["question"], "answer": row["perturbed_answer"][0]} for row in rows[:11]]
    (folder / "holdout25.json").write_text("\n".join(map(json.dumps, unseen)))
    return folder


def on(data: Path, **changes: Any) -> Benchmark:
    settings = {"data": str(data), "split": SPLIT, "dialect": "open-unlearning", "measures": ("all",)}
    return Benchmark.model_validate(settings | changes)


def test_a_quick_look_is_held_against_as_many_rows(data: Path, trained_inputs: Any) -> None:
    network, tokenizer = model_files.load_model_and_tokenizer(Model(path=str(trained_inputs.target)))
    reference = aggregates.Reference(np.linspace(0.1, 2.0, ROWS))
    asked = on(data, measures=())
    found, records = TofuBenchmark().measure_some_rows(network, tokenizer, asked, reference, token_budget=8192, most=4)
    ratios = aggregates.truth_ratios(records, "forget", aggregates.EPSILON_BY_DIALECT["open-unlearning"])
    assert len(ratios) == 4
    assert found["forget_quality"] == metrics.forget_quality(ratios, reference.ratios[:4])["forget_quality"]


def close(value: Any) -> Any:
    return pytest.approx(value, rel=1e-6, abs=1e-6)


@torch.no_grad()
def measure_row(network: Any, tokenizer: Any, question: str, answer: str) -> dict[str, float]:
    """Return a row's scores by open-unlearning's definitions, from one pass of this row alone in float64."""
    prompt = tokenizer(f"[INST] {question} [/INST]")["input_ids"]
    ids = tokenizer(f"[INST] {question} [/INST]{answer}")["input_ids"] + [tokenizer.eos_token_id]
    logs = torch.log_softmax(network(input_ids=torch.tensor([ids])).logits[0].double(), -1)[len(prompt) - 1 : -1]
    labels = torch.tensor(ids[len(prompt) :])
    picked = logs[torch.arange(len(labels)), labels]
    hits = (logs.argmax(-1) == labels)[:-1].tolist()
    correct_from = next((k for k in range(len(hits)) if all(hits[k:])), len(hits) - 1)
    mean = (logs.exp() * logs).sum(-1)
    deviation = ((logs.exp() * logs**2).sum(-1) - mean**2).clamp(min=1e-6).sqrt()
    fewest = max(1, int(0.4 * len(hits)))
    return {
        "loss": -picked.mean().item(),
        "extraction": 1 - correct_from / len(hits),
        "memorisation": sum(hits) / len(hits),
        "zlib": -picked.mean().item() / len(zlib.compress(tokenizer.decode(labels[:-1]).encode())),
        "min_k": -picked[:-1].sort().values[:fewest].mean().item(),
        "min_k_plus_plus": -((picked - mean) / deviation)[:-1].sort().values[:fewest].mean().item(),
    }


def test_every_measure_equals_a_restatement(trained_inputs: Any, data: Path) -> None:
    network, tokenizer = model_files.load_model_and_tokenizer(Model(path=str(trained_inputs.target)))
    benchmark = on(data)
    reference = tofu.aggregates.Reference(
        np.linspace(0.2, 2.0, ROWS),
        dict.fromkeys(tofu.aggregates.MEMBERSHIP_AUC_METRICS, 0.6),
        {"forget": np.linspace(0, 3, ROWS).tolist(), "holdout": np.linspace(1, 2, 11).tolist()},
    )
    found, records = evaluation.evaluate(network, tokenizer, benchmark, reference, token_budget=700)
    asked = tofu.rows.read_evaluation_rows(benchmark)
    rows = {
        task: [measure_row(network, tokenizer, row["question"], row["answer"]) for row in asked[task]]
        for task in ("forget", "retain", "holdout")
    }

    def column(task: str, name: str) -> list[float]:
        return [row[name] for row in rows[task]]

    def area(forget: list[float], holdout: list[float]) -> float:
        return float(roc_auc_score([0] * len(forget) + [1] * len(holdout), forget + holdout))

    for task in ("forget", "retain"):
        assert found[f"{task}_extraction_strength"] == close(np.mean(column(task, "extraction")))
        assert found[f"{task}_exact_memorisation"] == close(np.mean(column(task, "memorisation")))
    assert 0 < (found["forget_exact_memorisation"] or 0) < 1, "a model of which each measure says something"
    paraphrased = [
        measure_row(network, tokenizer, row["question"], row["paraphrased_answer"])["loss"] for row in asked["forget"]
    ]
    assert found["forget_paraphrase_prob"] == close(np.mean(np.exp(np.negative(paraphrased))))
    generated = [record["generation"] for record in records if record["task"] == "forget"]
    recall = [
        RougeScorer(["rougeL"], use_stemmer=True).score(row["paraphrased_answer"], text)["rougeL"].recall
        for row, text in zip(asked["forget"], generated, strict=True)
    ]
    assert found["forget_paraphrase_rouge"] == close(np.mean(recall))
    for name in ("loss", "zlib", "min_k", "min_k_plus_plus"):
        expected = area(column("forget", name), column("holdout", name))
        assert found[f"membership_{name}_auc"] == close(expected), name
    above = [np.subtract(column(task, "loss"), reference.losses[task]).tolist() for task in ("forget", "holdout")]
    assert found["membership_reference_auc"] == close(area(*above))
    kept = 1 - (found["membership_min_k_auc"] or 0)
    assert found["privleak"] == close(100 * (kept - 0.4) / (0.4 + 1e-10))
    parts = [found[f"forget_{name}"] for name in ("extraction_strength", "exact_memorisation", "paraphrase_prob")]
    shares = []
    for row, right in zip(asked["forget"], np.exp(np.negative(paraphrased)), strict=True):
        wrong = [measure_row(network, tokenizer, row["question"], text)["loss"] for text in row["perturbed_answer"]]
        shares.append(right / (right + np.exp(-np.mean(wrong)) + 1e-10))
    scores = [stats.hmean([1 - (part or 0) for part in [*parts, np.mean(shares)]])]
    apart = [1 - min(abs((found[name] or 0) - 0.6) / 0.6, 1) for name in tofu.aggregates.MEMBERSHIP_AUC_METRICS]
    scores += [stats.hmean(apart), found["model_utility"] or 0]
    told = [found[name] for name in ("memorisation_score", "privacy_score", "overall_score")]
    assert told == close([*scores[:2], stats.hmean(scores)])


def run(data: Path, model: str, output: Path, **options: object) -> Any:
    chosen = {"dialect": "open-unlearning", "split": SPLIT, "data": data, "limit": 4} | options
    words = [word for name, value in chosen.items() for word in (f"--{name.replace('_', '-')}", value)]
    return invoke(evaluate.main, "--model", model, "--output", output, *words)


def test_the_retain_model_leaks_nothing_against_itself(trained_inputs: Any, data: Path, tmp_path: Path) -> None:
    kept, again = tmp_path / "retain.json", tmp_path / "again.json"
    options = {"measures": "membership_min_k,membership_reference"}
    assert run(data, trained_inputs.target, kept, **options).exit_code == 0
    done = run(data, trained_inputs.target, again, retain_evaluation=kept, **options)
    assert done.exit_code == 0, done.output
    first, found = (json.loads(file.read_text()) for file in (kept, again))
    assert (found["privleak"], found["forget_quality"]) == (0.0, 0.0)
    assert (first["privleak_reference"], found["privleak_reference"]) == (0.5, 1 - first["membership_min_k_auc"])
    assert "membership_reference_auc" not in first
    assert found["membership_reference_auc"] == 0.5, "no row differs"
    assert "forget_extraction_strength" not in found, "not asked for"
    other = shutil.copytree(data, tmp_path / "other")
    rows = (other / "holdout25.json").read_text().splitlines()
    (other / "holdout25.json").write_text("\n".join(rows[1:]))
    done = run(other, trained_inputs.target, again, retain_evaluation=kept, **options)
    assert "was made on other holdout rows" in done.stderr


def test_membership_needs_rows_that_no_model_saw(trained_inputs: Any, tmp_path: Path) -> None:
    data, output = trained_inputs.data, tmp_path / "out.json"
    done = run(data, trained_inputs.target, output, measures="all")
    assert done.exit_code == 0, done.output
    assert f"warning: benchmark.measures: {data} has no hold-out rows (holdoutNN), so membership" in done.stderr
    found = json.loads(output.read_text())
    assert found["forget_extraction_strength"] is not None
    assert not any(name.startswith(("membership", "privleak")) for name in found)
    for options, words in (
        ({"measures": "membership_loss"}, "has no holdout25.json, .jsonl or .parquet; it has"),
        ({"measures": "all", "holdout": "holdout99"}, "has no holdout99.json"),
        ({"measures": "extraction_strenght"}, "no measure 'extraction_strenght'; did you mean 'extraction_strength'?"),
        ({"measures": "exact_memorisation", "holdout": "x"}, "only measures of membership read it"),
        ({"holdout": "x"}, "only measures of membership read it"),
    ):
        done = run(data, trained_inputs.target, output, **options)
        assert (done.exit_code, words in done.stderr) == (2, True), done.stderr


@pytest.mark.data
@pytest.mark.slow
def test_the_numbers_are_open_unlearnings(
    shared: Path, tofu_data: Path, tofu_models: Path, run_module: Any, tmp_path: Path
) -> None:
    """Its own code on the same models (`_note` in the file says how): all metrics to 2e-4, privleak to 2e-2 %."""
    told = json.loads((shared / "reference" / "open_unlearning_measures.json").read_text())
    retain, found = tmp_path / "retain.json", {}
    for name, against in (("retain95", []), ("full", ["--retain-evaluation", retain])):
        output = retain if name == "retain95" else tmp_path / "full.json"
        done = run_module(
            "trainables.evaluate",
            *("--model", tofu_models / name, "--data", tofu_data, "--split", "forget05", "--template", "llama2"),
            *("--dialect", "open-unlearning", "--measures", "all", "--holdout", "real_authors", *against),
            *("--output", output, "--rows", tmp_path / f"{name}.parquet"),
            timeout=900,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(output.read_text())
        expected = next(numbers for key, numbers in told.items() if key.startswith(name))
        for theirs, value in expected.items():
            assert found[OURS[theirs]] == pytest.approx(value, abs=2e-4 if theirs != "privleak" else 2e-2), theirs
        assert found["model_utility"] == pytest.approx(UTILITIES[name], abs=5e-5)
    assert found["forget_quality_pvalue"] == pytest.approx(4.869254633582969e-10, rel=1e-6), "its ks_test on both logs"
    assert found["forget_quality"] == pytest.approx(-21.4429, abs=5e-5)
    assert found["privleak"] == pytest.approx(-1.0899999998910022), "its privleak"
    rows = {name: atomic_files.read_parquet_rows(tmp_path / f"{name}.parquet") for name in UTILITIES}
    ratios = tofu.aggregates.truth_ratios(rows["retain95"], "forget", 1e-10)
    again = tofu.aggregates.aggregate_metrics(rows["full"], "open-unlearning", ratios)
    assert {name: found[name] for name in again} == again
    counts = {task: sum(row["task"] == task for row in rows["full"]) for task in COUNTS}
    assert counts == COUNTS
    known = [np.mean([row["extraction_strength"] for row in rows[name][:200]]) for name in UTILITIES]
    assert known[0] < known[1]


# A retain log of open-unlearning in the place of our own retain evaluation

Log = dict[str, Any]


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
    folder = tmp_path_factory.mktemp("written")
    assert run(data, trial_inputs.retain, folder / "retain.json", measures="all").exit_code == 0
    (folder / "log.json").write_text(json.dumps(make_log(read(folder, "retain.json"))))
    for name, against in (("full", "retain"), ("theirs", "log")):
        options = {"measures": "all", "retain_evaluation": folder / f"{against}.json"}
        assert run(data, trial_inputs.target, folder / f"{name}.json", **options).exit_code == 0
    return folder


def read(folder: Path, name: str) -> Log:
    return json.loads((folder / name).read_text())


def test_theirs_gives_what_ours_gives(written: Path) -> None:
    ours, theirs = (
        {k: v for k, v in read(written, name).items() if isinstance(v, float)} for name in ("full.json", "theirs.json")
    )
    assert theirs == pytest.approx(ours)
    assert ours.keys() >= {"forget_quality", "privleak", "privacy_score", "membership_reference_auc"}


def drop_row(part: Log) -> None:
    part["value_by_index"].popitem()


@pytest.mark.parametrize(
    ("change", "dialect", "words"),
    [
        (lambda log: None, "paper", "is open-unlearning's: it goes with its dialect"),
        (lambda log: drop_row(log["mia_loss"]["holdout"]), "open-unlearning", "it has 3, this evaluation 4"),
        (lambda log: drop_row(log["forget_truth_ratio"]), "open-unlearning", "is of 3 forget rows, forget25 has 4"),
        (lambda log: log["forget_truth_ratio"].clear(), "open-unlearning", "is no TOFU_EVAL.json of open-unlearning"),
    ],
)
def test_what_is_refused(
    change: Any, dialect: str, words: str, trial_inputs: Any, data: Path, written: Path, tmp_path: Path
) -> None:
    log = read(written, "log.json")
    change(log)
    (tmp_path / "log.json").write_text(json.dumps(log))
    given: dict[str, object] = {"measures": "all", "retain_evaluation": tmp_path / "log.json", "dialect": dialect}
    done = run(data, trial_inputs.target, tmp_path / "out", **given)
    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
