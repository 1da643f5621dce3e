"""`python -m trainables.evaluate`: its numbers on real models, what it writes, what it refuses."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.starts import assert_refused, invoke
from trainables import evaluate
from trainables.benchmarks import tofu
from trainables.config.settings import Model
from trainables.storage import atomic_files
from trainables.training import model_files

KEYS = {"forget_quality", "forget_quality_pvalue", "model_utility", "forget_truth_ratio", "forget_prob", "forget_rouge"}
KEYS |= {f"{task}_{kind}" for task in ("retain", "real_authors", "world_facts") for kind in ("prob", "rouge")}
KEYS |= {f"{task}_truth_ratio" for task in ("retain", "real_authors", "world_facts")}

Run = Callable[..., Any]


def evaluate_with(**options: object) -> Any:
    words = [(f"--{name.replace('_', '-')}", value) for name, value in options.items()]
    return invoke(evaluate.main, *(word for option in words for word in option))


@pytest.fixture
def run(trial_inputs: Any, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in this process, from the root, on the tiny models, with what a test changes."""
    monkeypatch.chdir(root)
    options = {"model": trial_inputs.target, "data": trial_inputs.data, "split": trial_inputs.split}
    return lambda **changes: evaluate_with(**options | {"output": tmp_path / "out.json"} | changes)


@pytest.fixture(scope="module")
def evaluated(trial_inputs: Any, tmp_path_factory: Any) -> Path:
    """Return the evaluation of the tiny retain model, in the paper's dialect."""
    output = tmp_path_factory.mktemp("evaluated") / "retain.json"
    done = evaluate_with(model=trial_inputs.retain, data=trial_inputs.data, split=trial_inputs.split, output=output)
    assert done.exit_code == 0, done.output
    return output


def test_what_it_writes(trial_inputs: Any, run: Run, evaluated: Path, tmp_path: Path) -> None:
    done = run(retain_evaluation=evaluated, rows=tmp_path / "deep" / "rows.parquet")
    assert done.exit_code == 0, done.output
    kept, records = (
        json.loads((tmp_path / "out.json").read_text()),
        atomic_files.read_parquet_rows(tmp_path / "deep/rows.parquet"),
    )
    assert kept.keys() >= KEYS | {"versions", "commit", "model", "benchmark"}
    assert kept["model"]["fingerprint"] == model_files.fingerprint_model(Model(path=str(trial_inputs.target)))
    assert (kept["benchmark"]["dialect"], kept["precision"]) == ("paper", "fp32")
    assert kept["forget_quality"] == pytest.approx(math.log(kept["forget_quality_pvalue"]))
    assert f"forget quality (ln p) {kept['forget_quality']:.4f}" in done.stdout
    retain = json.loads(evaluated.read_text())
    again = tofu.aggregates.aggregate_metrics(
        records, "paper", torch.tensor(retain["forget_truth_ratios"], dtype=torch.float64).numpy()
    )
    assert {name: kept[name] for name in again} == again
    assert kept["forget_rows"] == 15 == len(retain["forget_truth_ratios"])
    assert {value for name, value in retain.items() if name.startswith("forget_quality")} == {None}
    assert_refused(run(rows=tmp_path / "out.json"), "--output, --rows and --retain-evaluation: give each its own file")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"template": "lama2"}, "unknown template 'lama2'; did you mean 'llama2'? known: llama2, phi, llama3, qwen,"),
        ({"dialect": "papper"}, "dialect: |'paper' or 'open-unlearning'|(got 'papper')"),
        ({"split": "forget5"}, "unknown split 'forget5'; did you mean 'forget05'? known: forget01, forget05"),
        ({"data": "./nowhere"}, "benchmark.data: no folder './nowhere', looked for at /|(give a folder, or a hub id"),
        ({"model": "./nowhere"}, "--model: no model folder './nowhere' (give a folder or a hub id)"),
        ({"retain_evaluation": "nowhere.json"}, "--retain-evaluation: nowhere.json is not the output of"),
        ({"split": ""}, "--split: name the forget split of tofu"),
        ({"output": "tests"}, "--output: |tests"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_input_is_told_in_one_message(run: Run, change: dict[str, str], words: str) -> None:
    assert_refused(run(**change), *words.split("|"))


def spoiled(trial_inputs: Any, folder: Path, config: str, text: str | None) -> Path:
    shutil.copytree(trial_inputs.data, folder)
    (folder / f"{config}.json").unlink() if text is None else (folder / f"{config}.json").write_text(text)
    return folder


def test_bad_rows_and_an_incomplete_model_are_told(trial_inputs: Any, run: Run, tmp_path: Path) -> None:
    data = spoiled(trial_inputs, tmp_path / "rows", "forget25_perturbed", '{"question": "a", "answer": "b"}')
    assert_refused(run(data=data), "benchmark.data: row 1 of forget25_perturbed in", "its columns: question, answer")
    row = {"question": "a", "answer": "b", "paraphrased_answer": "c", "perturbed_answer": "d"}
    data = spoiled(trial_inputs, tmp_path / "texts", "forget25_perturbed", json.dumps(row))
    assert_refused(run(data=data), "benchmark.data: row 1 of forget25_perturbed: write texts, as many in each pert")
    data = spoiled(trial_inputs, tmp_path / "none", "retain_perturbed", None)
    assert_refused(run(data=data), "benchmark.data: ", "has no retain_perturbed.json, .jsonl or .parquet; it has")
    shutil.copytree(trial_inputs.target, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    assert_refused(
        run(model=tmp_path / "model"), f"--model: model folder {tmp_path / 'model'} has no tokenizer.json; it has"
    )


def test_a_retain_evaluation_of_something_else_is_refused(
    trial_inputs: Any, run: Run, evaluated: Path, tmp_path: Path
) -> None:
    for field, value in (("split", "forget10"), ("dialect", "open-unlearning"), ("template", "phi")):
        other = json.loads(evaluated.read_text())
        other["benchmark"][field] = value
        atomic_files.write_json(tmp_path / "other.json", other)
        done = run(retain_evaluation=tmp_path / "other.json")
        assert_refused(done, "--retain-evaluation: ", f"was made with {field} '{value}'")
    text = (trial_inputs.data / "forget25_perturbed.json").read_text()
    data = spoiled(trial_inputs, tmp_path / "data", "forget25_perturbed", text.replace("born", "bred"))
    assert_refused(run(data=data, retain_evaluation=evaluated), "was made on other forget rows than")
    atomic_files.write_json(tmp_path / "bf16.json", json.loads(evaluated.read_text()) | {"precision": "bf16"})
    assert "--retain-evaluation is of bf16, this is of fp32" in run(retain_evaluation=tmp_path / "bf16.json").stderr
