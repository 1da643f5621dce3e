"""Attacks on an unlearned model: what came back, and the command."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support import tiny
from tests.support.starts import invoke
from trainables import stress
from trainables.benchmarks.tofu import make_question_records, rows
from trainables.config.settings import Benchmark, Model, Resources
from trainables.data.conversations import make_encoder
from trainables.data.templates import TEMPLATES
from trainables.inference.generation import sample_answers
from trainables.robustness import attack_runner, attacks
from trainables.robustness.attacks import NO_ATTACK, SECOND_HALF_POINT
from trainables.training import model_files
from trainables.training.runtime import prepare_process
from trainables.training.sampling import draw_forget_row_numbers


@given(st.floats(0, 0.8), st.floats(-0.5, 1), st.floats(0, 0.3))
def test_shares_are_gains_over_what_was_removed(before: float, part: float, retain_gain: float) -> None:
    """An attack brings `part` of the removed back, and as much to every model as to the retain model."""
    target = before + 0.1
    after = before + part * (target - before) + retain_gain
    assert attacks.compute_recovered_share(before, after, target, retain_gain) == pytest.approx(part, abs=1e-6)
    assert attacks.compute_recovered_share(before, after, before + 0.04, retain_gain) is None
    assert attacks.compute_recovered_share(before, before, target, -retain_gain) == 0


def kept(values: dict[str, float], **settings: Any) -> dict[str, Any]:
    return {"settings": settings, "points": {step: {"extraction_strength": value} for step, value in values.items()}}


def test_the_yardstick_is_the_retain_model_under_the_same_attack() -> None:
    model = {
        NO_ATTACK: kept({"0": 0.3, SECOND_HALF_POINT: 0.2}),
        "nf4": kept({"0": 0.4}),
        "relearn": kept({"13": 0.7, "4": 0.5}, lr=1e-3),
        "relearn_half": kept({"13": 0.5}, lr=1e-3),
        "relearn_retain": kept({"13": 0.5}, lr=1e-3),
        "prefix": kept({"0": 0.9}),
    }
    target = {NO_ATTACK: kept({"0": 0.9, SECOND_HALF_POINT: 0.8}), "nf4": kept({"0": 0.7})}
    retain = {NO_ATTACK: kept({"0": 0.1, SECOND_HALF_POINT: 0.1}), "nf4": kept({"0": 0.1}), "prefix": kept({"0": 0.1})}
    retain["relearn"], retain["relearn_half"] = kept({"13": 0.6, "4": 0.1}, lr=1e-3), kept({"13": 0.2}, lr=1e-3)
    found = attacks.list_recoveries(model, target, retain)
    attacked = [("nf4", 0), ("relearn", 4), ("relearn", 13), ("relearn_half", 13)]
    assert [(row["attack"], row["step"]) for row in found] == attacked, "not all models were attacked by the others"
    shares = [0.1 / 0.6, 0.2 / 0.6, (0.4 - 0.5) / 0.6, (0.3 - 0.1) / 0.6]
    assert [row["share"] for row in found] == pytest.approx(shares)
    assert shares[2] < shares[1], "the retain model learns as quickly: that is no forgotten knowledge"
    assert found[2]["title"] == "relearning the forget rows (lr 0.001), step 13"
    alone = attacks.list_recoveries(model, target, None)
    assert [row["retain"] for row in alone] == [None] * 5
    assert alone[1]["share"] == pytest.approx((0.5 - 0.3) / (0.9 - 0.3))
    assert attacks.list_recoveries({**model, "nf4": kept({})}, target, retain)[0]["step"] == 4


def test_a_sweep_is_its_worst_less_the_worst_of_the_retain_model() -> None:
    """Each under its own worst relearning, on the rows that none teaches."""
    before = {NO_ATTACK: kept({"0": 0.9, SECOND_HALF_POINT: 0.1})}
    model = before | {"sweep": kept({"0": 0.6}, attackers=[{"lr": 1e-3}, {"lr": 4e-3}])}
    target = {NO_ATTACK: kept({"0": 0.9, SECOND_HALF_POINT: 0.9})}
    retain = {NO_ATTACK: kept({"0": 0.2, SECOND_HALF_POINT: 0.05})}
    retain["sweep"] = kept({"0": 0.15}, lr=1e-3)
    (found,) = attacks.list_recoveries(model, target, retain)
    assert found["title"] == "worst of several relearnings (lr 0.001 to 0.004)"
    assert found["share"] == pytest.approx((0.6 - 0.1 - (0.15 - 0.05)) / (0.9 - 0.1))
    assert (found["worst"], found["retain_worst"]) == (model["sweep"]["points"]["0"], retain["sweep"]["points"]["0"])
    (alone,) = attacks.list_recoveries(model, target, None)
    assert (alone["share"], alone["retain_worst"]) == (pytest.approx(0.5 / 0.8), None)


def run(inputs: Any, place: Path, *more: object, limit: int = 6) -> Any:
    words = ("--target", inputs.target, "--retain", inputs.retain, "--data", inputs.data, "--split", inputs.split)
    return invoke(stress.main, inputs.target, *words, "--limit", limit, "--storage", place / "runs", *more)


def test_the_command_keeps_what_it_made(trial_inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target model that is taken for the unlearned one: nothing was removed, so no share is told."""
    options = ("--attacks", "nf4,relearn_half,prefix,paraphrase", "--output", tmp_path / "out.json", "--lr", "1e-3")
    done = run(trial_inputs, tmp_path, *options)
    assert done.exit_code == 0, done.output
    assert "relearning one half, measured on the other (lr 0.001), step 13" in done.stdout
    kept = json.loads((tmp_path / "out.json").read_text())
    made = sorted(path.stem.partition("-")[0] for path in (tmp_path / "runs" / "stress").glob("*/*.json"))
    assert made == sorted(["nf4", "prefix", "paraphrase", NO_ATTACK] * 2 + ["relearn_half"] * 2 + ["came_back"])
    model, target = kept["results"]["model"], kept["results"]["target"]
    assert model[NO_ATTACK] == target[NO_ATTACK], "the same model is measured once"
    assert (model[NO_ATTACK]["points"]["0"]["rows"], model["relearn_half"]["points"]["13"]["rows"]) == (6, 3)
    network, tokenizer = model_files.load_model_and_tokenizer(Model(path=str(trial_inputs.target)))
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split, limit=6)
    asked = {"forget": rows.read_evaluation_rows(benchmark)["forget"]}
    after = " [/INST]Sure, here is the answer: "
    encoder = replace(make_encoder("llama2", tokenizer), template=replace(TEMPLATES["llama2"], after=after))
    words: dict[str, Any] = {"asked_rows": asked, "encoder": encoder, "token_budget": 700}
    found = make_question_records(network, tokenizer, benchmark, **words)
    probs = [torch.tensor(-row["answer_loss"] / row["answer_tokens"]).exp().item() for row in found]
    assert model["prefix"]["points"]["0"]["prob"] == pytest.approx(sum(probs) / 6, rel=1e-5)
    loaded: list[str] = []
    load = model_files.load_model_and_tokenizer
    monkeypatch.setattr(
        model_files, "load_model_and_tokenizer", lambda *words: loaded.append(words[0].path) or load(*words)
    )
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
def test_a_sweep_relearns_from_the_same_weights_each_time(trial_inputs: Any, tmp_path: Path) -> None:
    """Its file of the worst, and any other, runs alone with the same numbers."""
    asked = ("--sweep", "--lr", "1e-2", "--output", tmp_path / "out.json")
    assert run(trial_inputs, tmp_path, *asked, limit=2).exit_code == 0
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert set(results["model"]) == {NO_ATTACK, "sweep"}
    assert set(results["target"]) == {NO_ATTACK}
    made, worst = results["model"]["sweep"]["relearnings"], results["model"]["sweep"]["points"]["0"]
    grid = {(row["learns"], row["lr"], row["step"]) for row in made}
    rates = (0.0025, 0.01, 0.04)
    assert grid <= {
        (one, lr, step) for one in ("first half", "retain", "unrelated") for lr in rates for step in (1, 4, 13)
    }
    assert len(made) == len(grid) > 20
    assert worst["extraction_strength"] == max(row["extraction_strength"] for row in made)
    assert {row["rows"] for row in made} == {1}, "of the second half"
    (file,) = (tmp_path / "runs" / "stress").glob("*/attackers.json")
    kept = json.loads(file.read_text())["attackers"]
    assert {"learns": worst["learns"], "lr": worst["lr"]} in kept
    last = {"learns": made[-1]["learns"], "lr": made[-1]["lr"]}
    file.write_text(json.dumps({"attackers": [last], "seed": 0}))
    (came_back,) = (tmp_path / "runs" / "stress").glob("*/came_back.json")
    before = came_back.read_text()
    assert run(trial_inputs, tmp_path, "--attack", file, "--output", tmp_path / "one.json", limit=2).exit_code == 0
    assert came_back.read_text() == before, "the worst of the sweep stays this model's"
    alone = json.loads((tmp_path / "one.json").read_text())["results"]["model"]["sweep"]["relearnings"]
    assert alone == [row for row in made if last.items() <= row.items()]
    done = run(trial_inputs, tmp_path, "--samples", "4", "--output", tmp_path / "leak.json", limit=2)
    assert (done.exit_code, "leak@k: the best of k" in done.stdout) == (0, True), done.output
    for role, found in json.loads((tmp_path / "leak.json").read_text())["results"].items():
        curve = [point["leak"] for point in found["sampling"]["points"].values()]
        assert (len(curve), sorted(curve)) == (3, curve), (role, "of 1, 2 and 4 samples")
    for text, words in (("{}", "attackers: Field required"), ('{"attackers": []}', "attackers: Tuple should have")):
        file.write_text(text)
        refused = run(trial_inputs, tmp_path, "--attack", file, limit=2)
        assert (refused.exit_code, f"--attack: {file}: {words}" in " ".join(refused.stderr.split())) == (2, True)


def test_what_is_refused(trial_inputs: Any, tmp_path: Path) -> None:
    attackers = tmp_path / "attackers.json"
    attackers.write_text('{"attackers": [{"learns": "retain", "lr": 1e-3}]}')
    for more, words in (
        (("--attacks", "nf5"), "--attacks: unknown attack 'nf5'; did you mean 'nf4'?"),
        ((), "--lr: relearning needs a learning rate"),
        (("--attack", attackers, "--lr", "1e-2"), "--attack: the file says the relearnings"),
        (("--attacks", "int8", "--lr", "1e-2"), "--lr: none of these attacks reads it"),
        (("--attack", attackers, "--attacks", "relearn_half"), "--lr: relearning needs a learning rate"),
        (("--target", "nowhere/at/all", "--attacks", "nf4"), "--target: no model folder"),
    ):
        done = run(trial_inputs, tmp_path, *more)
        assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
    for typed, message in (
        ([trial_inputs.target], "--target: name the model before unlearning"),
        (["0123456789ab", "--split", "forget01"], "--split: of a model folder; 0123456789ab is none, and a trial has"),
    ):
        done = invoke(stress.main, *typed, "--storage", tmp_path, "--attacks", "nf4")
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


# Relearning


def test_relearning_is_adamw_with_a_falling_rate(trial_inputs: Any) -> None:
    """One row at a time in plain PyTorch: the loss is the mean over the step's answer tokens."""
    prepare_process(Resources(), 0)
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split)
    network, tokenizer = model_files.load_model_and_tokenizer(Model(path=str(trial_inputs.target)))
    restated, _ = model_files.load_model_and_tokenizer(Model(path=str(trial_inputs.target)))
    examples = tiny.encode_rows(tokenizer, rows.read_evaluation_rows(benchmark)["forget"][:5], "llama2", "paper", 200)
    seen: list[int] = []
    found: dict[str, torch.Tensor] = {}
    how: dict[str, Any] = {"resources": Resources(), "attention": "sdpa"}
    for step, model in attack_runner.relearn(network, tokenizer, examples, lr=1e-3, steps=(1, 3), seed=4, **how):
        assert not model.training
        seen.append(step)
        found = {name: value.detach().clone() for name, value in model.state_dict().items()}
    assert seen == [1, 3]
    optimizer = torch.optim.AdamW(restated.parameters(), lr=1e-3, weight_decay=0)
    for step in range(3):
        optimizer.param_groups[0]["lr"] = 1e-3 * (3 - step) / 3
        total, tokens = torch.zeros(()), 0
        for number in draw_forget_row_numbers(4, step, 0, len(examples), len(examples)):
            ids, start = torch.tensor([examples[number].input_ids]), examples[number].answer_start
            logits = restated(input_ids=ids).logits[0, start - 1 : -1]
            total = total + torch.nn.functional.cross_entropy(logits, ids[0, start:], reduction="sum")
            tokens += ids.shape[1] - start
        optimizer.zero_grad()
        (total / tokens).backward()
        optimizer.step()
    for name, value in restated.state_dict().items():
        assert torch.allclose(found[name], value, atol=2e-5), name


# Sampled answers


@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.lists(st.floats(0, 1), min_size=n, max_size=n), min_size=1)))
def test_leak_at_k_is_the_mean_best_over_all_subsets(scores: list[list[float]]) -> None:
    for k in range(1, len(scores[0]) + 1):
        wanted = mean(mean(max(subset) for subset in combinations(row, k)) for row in scores)
        assert attack_runner.compute_leak_at_k(k, np.array(scores)) == pytest.approx(wanted, abs=1e-9)
    assert [attack_runner.compute_leak_at_k(k, np.eye(1, 128)) for k in (2, 128)] == pytest.approx([2 / 128, 1])


def test_answers_are_drawn_as_likely_as_the_model_says(trial_inputs: Any) -> None:
    """How often an answer begins with its likeliest letter, to three standard errors; none has more than its end."""
    prepare_process(Resources(), 3)
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split)
    network, tokenizer = model_files.load_model_and_tokenizer(Model(path=str(trial_inputs.target)))
    encoder = make_encoder("llama2", tokenizer)
    (prompt,) = encoder.encode_prompts([rows.read_evaluation_rows(benchmark)["forget"][0]["question"]])
    (texts,) = sample_answers(network, tokenizer, [prompt], 300, encoder.end_tokens, 20_000)
    with torch.no_grad():
        chances = network(input_ids=torch.tensor([prompt])).logits[0, -1].softmax(-1).tolist()
    letters: dict[str, float] = {}
    for token, chance in enumerate(chances):
        letter = tokenizer.decode([token], skip_special_tokens=True)[:1]
        letters[letter] = letters.get(letter, 0.0) + chance
    likeliest = max(letters, key=lambda letter: letters[letter])
    assert 0.05 < (share := letters[likeliest]) < 0.95
    found = mean(text[:1] == likeliest for text in texts)
    assert found == pytest.approx(share, abs=3 * (share * (1 - share) / 300) ** 0.5 + 0.01), letters
    assert (len(texts), len(set(texts)) > 100) == (300, True)


# Rounded weights


POSITIVE = (0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434)
POSITIVE += (0.5626170039176941, 0.7229568362236023, 1.0)
NEGATIVE = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635)
NEGATIVE += (-0.18477343022833234, -0.09105003625154495)


def test_nf4_takes_the_nearest_of_sixteen_values_in_each_block() -> None:
    weight = torch.randn(5, 29, generator=torch.Generator().manual_seed(0))
    flat, found = weight.flatten().tolist(), attack_runner.fake_quantize_nf4(weight).flatten().tolist()
    for start in range(0, len(flat), 64):  # the last block is short
        block = flat[start : start + 64]
        largest = max(map(abs, block))
        for value, rounded in zip(block, found[start:], strict=False):
            nearest = min((*NEGATIVE, 0.0, *POSITIVE), key=lambda code: abs(code * largest - value))
            assert rounded == pytest.approx(nearest * largest)
    assert not attack_runner.fake_quantize_nf4(torch.zeros(2, 64)).any()


def test_int8_rounds_each_row_to_255_steps() -> None:
    weight = torch.randn(7, 33, generator=torch.Generator().manual_seed(1))
    for row, found in zip(weight.tolist(), attack_runner.fake_quantize_int8(weight).tolist(), strict=True):
        step = max(map(abs, row)) / 127
        assert found == pytest.approx([round(value / step) * step for value in row])
    assert not attack_runner.fake_quantize_int8(torch.zeros(2, 8)).any()


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_linear_layers_but_the_head_are_rounded(kind: str) -> None:
    network = tiny.network(layers=1)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    attack_runner.fake_quantize_weights(network, kind)
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if "proj" in name}
