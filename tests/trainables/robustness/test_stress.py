"""Attacks on an unlearned model: what came back, and the command."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from tests.support.starts import invoke
from trainables import stress
from trainables.benchmarks.tofu import row_scores, rows
from trainables.config.settings import Benchmark, Model
from trainables.data import text_blocks
from trainables.data.conversations import make_encoder
from trainables.data.templates import TEMPLATES
from trainables.inference import greedy_answers
from trainables.robustness import came_back
from trainables.robustness.attacks import NONE, SECOND_HALF
from trainables.training import model_files


@given(st.floats(0, 0.8), st.floats(-0.5, 1), st.floats(0, 0.3))
def test_shares_are_gains_over_what_was_removed(before: float, part: float, retain_gain: float) -> None:
    """An attack brings `part` of the removed back, and as much to every model as to the retain model."""
    target = before + 0.1
    after = before + part * (target - before) + retain_gain
    assert came_back.share(before, after, target, retain_gain) == pytest.approx(part, abs=1e-6)
    assert came_back.share(before, after, before + 0.04, retain_gain) is None, "hardly anything was removed"
    assert came_back.share(before, before, target, -retain_gain) == 0, "what the retain model loses did not come back"


def kept(values: dict[str, float], **settings: Any) -> dict[str, Any]:
    return {"settings": settings, "points": {step: {"extraction_strength": value} for step, value in values.items()}}


def test_the_yardstick_is_the_retain_model_under_the_same_attack() -> None:
    model = {
        NONE: kept({"0": 0.3, SECOND_HALF: 0.2}),
        "nf4": kept({"0": 0.4}),
        "relearn": kept({"13": 0.7, "4": 0.5}, lr=1e-3),
        "relearn_half": kept({"13": 0.5}, lr=1e-3),
        "relearn_retain": kept({"13": 0.5}, lr=1e-3),
        "prefix": kept({"0": 0.9}),
    }
    target = {NONE: kept({"0": 0.9, SECOND_HALF: 0.8}), "nf4": kept({"0": 0.7})}
    retain = {
        NONE: kept({"0": 0.1, SECOND_HALF: 0.1}),
        "nf4": kept({"0": 0.1}),
        "prefix": kept({"0": 0.1}),
    }
    retain["relearn"], retain["relearn_half"] = kept({"13": 0.6, "4": 0.1}, lr=1e-3), kept({"13": 0.2}, lr=1e-3)
    found = came_back.list_attacks(model, target, retain)
    attacked = [("nf4", 0), ("relearn", 4), ("relearn", 13), ("relearn_half", 13)]
    assert [(row["attack"], row["step"]) for row in found] == attacked, "not all models were attacked by the others"
    shares = [0.1 / 0.6, 0.2 / 0.6, (0.4 - 0.5) / 0.6, (0.3 - 0.1) / 0.6]
    assert [row["share"] for row in found] == pytest.approx(shares)
    assert shares[2] < shares[1], "the retain model learns as quickly: that is no forgotten knowledge"
    assert found[2]["title"] == "relearning the forget rows (lr 0.001), step 13"
    alone = came_back.list_attacks(model, target, None)
    assert [row["retain"] for row in alone] == [None] * 5
    assert alone[1]["share"] == pytest.approx((0.5 - 0.3) / (0.9 - 0.3))
    assert came_back.list_attacks({**model, "nf4": kept({})}, target, retain)[0]["step"] == 4
    answered = {"settings": {}, "points": {"0": {"greedy_rouge": 0.4, "rouge": 0.6}}}
    full = {"settings": {}, "points": {"0": {"greedy_rouge": 0.9, "rouge": 1.0}}}
    (row,) = came_back.list_attacks({"sampling": answered}, {"sampling": full}, None)
    assert row["share"] == pytest.approx((0.6 - 0.4) / (0.9 - 0.4)), "before sampling is greedy"


def run(inputs: Any, place: Path, *more: object) -> Any:
    words = ("--target", inputs.target, "--retain", inputs.retain, "--data", inputs.data, "--split", inputs.split)
    return invoke(stress.main, inputs.target, *words, "--limit", 6, "--storage", place / "runs", *more)


def test_the_command_keeps_what_it_made(trial_inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target model that is taken for the unlearned one: nothing was removed, so no share is told."""
    options = ("--attacks", "nf4,relearn_half,prefix,paraphrase", "--output", tmp_path / "out.json", "--lr", "1e-3")
    done = run(trial_inputs, tmp_path, *options)
    assert done.exit_code == 0, done.output
    assert "relearning one half, measured on the other (lr 0.001), step 13" in done.stdout
    kept = json.loads((tmp_path / "out.json").read_text())
    made = sorted(path.stem.partition("-")[0] for path in (tmp_path / "runs" / "stress").glob("*/*.json"))
    assert made == sorted(["nf4", "prefix", "paraphrase", NONE] * 2 + ["relearn_half"] * 2 + ["came_back"])
    model, target = kept["results"]["model"], kept["results"]["target"]
    assert model[NONE] == target[NONE], "the same model is measured once"
    assert (model[NONE]["points"]["0"]["rows"], model["relearn_half"]["points"]["13"]["rows"]) == (6, 3)
    network, tokenizer = model_files.load_model(Model(path=str(trial_inputs.target)))
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split, limit=6)
    asked = {"forget": rows.evaluation_rows(benchmark)["forget"]}
    after = " [/INST]Sure, here is the answer: "
    encoder = replace(make_encoder("llama2", tokenizer), template=replace(TEMPLATES["llama2"], after=after))
    words: dict[str, Any] = {"asked_rows": asked, "encoder": encoder, "generate": False, "token_budget": 700}
    found = row_scores.evaluate(network, tokenizer, benchmark, **words)
    probs = [torch.tensor(-row["answer_loss"] / row["answer_tokens"]).exp().item() for row in found]
    assert model["prefix"]["points"]["0"]["prob"] == pytest.approx(sum(probs) / 6, rel=1e-5)
    loaded: list[str] = []
    load = model_files.load_model
    monkeypatch.setattr(model_files, "load_model", lambda *words: loaded.append(words[0].path) or load(*words))
    again = run(trial_inputs, tmp_path, *options)
    assert (again.exit_code, loaded) == (0, []), "all is kept"
    assert json.loads((tmp_path / "out.json").read_text()) == kept
    assert run(trial_inputs, tmp_path, *options[:-1], "1e-2").exit_code == 0
    assert len(loaded) == 2, "relearning with another rate, of both models"
    assert run(trial_inputs, tmp_path, "--attacks", "nf4").exit_code == 0
    (path,) = (tmp_path / "runs" / "stress").glob("*/came_back.json")
    known = {row["attack"]: row["lr"] for row in json.loads(path.read_text())["shares"]}
    assert known == {"nf4": None, "relearn_half": 0.01, "paraphrase": None, "prefix": None}, "of earlier commands, too"


@pytest.mark.slow
def test_sampling_on_request(trial_inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(trial_inputs, tmp_path, "--attacks", "sampling", "--output", tmp_path / "out.json", "--limit", 3)
    assert done.exit_code == 0, done.output
    kept = json.loads((tmp_path / "out.json").read_text())
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split, limit=3)
    for role, path in (("target", trial_inputs.target), ("retain", trial_inputs.retain)):
        network, tokenizer = model_files.load_model(Model(path=str(path)))
        asked = rows.evaluation_rows(benchmark)["forget"]
        greedy = row_scores.evaluate(network, tokenizer, benchmark, asked_rows={"forget": asked}, token_budget=4096)
        asked_texts = [f"[INST] {row['question']} [/INST]" for row in asked for _ in range(8)]
        prompts = [text_blocks.tokenize(tokenizer, text) for text in asked_texts]
        texts = greedy_answers.generate(
            network, tokenizer, prompts, token_budget=300, new_tokens=200, total=True, seed=0
        )
        assert len(set(texts)) > 8
        scorer = RougeScorer(["rougeL"], use_stemmer=True)
        recalls = [scorer.score(asked[n // 8]["answer"], text)["rougeL"].recall for n, text in enumerate(texts)]
        best = [max(recalls[8 * n : 8 * n + 8]) for n in range(3)]
        point = kept["results"][role]["sampling"]["points"]["0"]
        assert point["rouge"] == pytest.approx(sum(best) / 3)
        assert point["greedy_rouge"] == pytest.approx(sum(row["rougeL_recall"] for row in greedy) / 3)
    assert "best of 8 sampled answers (ROUGE-L)" in done.stdout
    assert [row["attack"] for row in kept["shares"]] == ["sampling"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--attacks", "nf5"), "--attacks: unknown attack 'nf5'; did you mean 'nf4'?"),
        (("--attacks", ","), "sampling; all is without sampling"),
        (("--lr", "0"), "--lr: 0 is no learning rate"),
        ((), "--lr: relearning needs a learning rate"),
        (("--target", "nowhere/at/all", "--attacks", "nf4"), "--target: no model folder"),
    ],
)
def test_what_is_refused(trial_inputs: Any, tmp_path: Path, more: tuple[str, ...], words: str) -> None:
    done = run(trial_inputs, tmp_path, *more)
    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr


def test_a_folder_needs_its_target_and_a_trial_its_weights(trial_inputs: Any, tmp_path: Path) -> None:
    for words, message in (
        ([trial_inputs.target], "--target: name the model before unlearning"),
        (["0123456789ab"], "ID: no result of a trial '0123456789ab'"),
        (["0123456789ab", "--split", "forget01"], "--split: of a model folder; 0123456789ab is none, and a trial has"),
    ):
        done = invoke(stress.main, *words, "--storage", tmp_path, "--attacks", "nf4")
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_other_weights_in_the_same_folder_are_attacked_anew(trial_inputs: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(trial_inputs.target, tmp_path / "model")
    words = ("--target", trial_inputs.target, "--data", trial_inputs.data, "--split", trial_inputs.split)
    words += ("--limit", 4, "--attacks", "int8", "--storage", tmp_path / "runs", "--output", tmp_path / "out.json")
    found = []
    for source in (trial_inputs.target, trial_inputs.retain):
        shutil.copy(Path(source) / "model.safetensors", folder / "model.safetensors")
        done = invoke(stress.main, folder, *words)
        assert done.exit_code == 0, done.output
        found.append(json.loads((tmp_path / "out.json").read_text())["results"]["model"]["int8"]["points"]["0"]["prob"])
    assert found[0] != found[1]
