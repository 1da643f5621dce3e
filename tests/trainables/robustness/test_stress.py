"""Attacks on an unlearned model: what each does, against re-statements; what came back; the command."""

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

from tests.support import tiny
from tests.support.starts import invoke
from trainables import stress
from trainables.benchmarks.tofu import row_scores, rows
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model, Resources
from trainables.data.prompts import TEMPLATES, encode_all
from trainables.inference import greedy_answers
from trainables.robustness import attack_runner, attacks, came_back, depth, quantization, relearning
from trainables.robustness.attacks import ANSWERS, NONE, SECOND_HALF
from trainables.training import model_files, sampling
from trainables.training.runtime import prepare_process
from trainables.trial import setup

BITSANDBYTES = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635]
BITSANDBYTES += [-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725]
BITSANDBYTES += [
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
]


def test_nf4_takes_the_nearest_of_sixteen_values_in_each_block() -> None:
    weight = torch.randn(5, 29, generator=torch.Generator().manual_seed(0))
    flat, found = weight.flatten().tolist(), quantization.round_nf4(weight).flatten().tolist()
    for start in range(0, len(flat), 64):  # the last block is short
        block = flat[start : start + 64]
        largest = max(map(abs, block))
        for value, rounded in zip(block, found[start:], strict=False):
            nearest = min(BITSANDBYTES, key=lambda code: abs(code * largest - value))
            assert rounded == pytest.approx(nearest * largest)
    assert not quantization.round_nf4(torch.zeros(2, 64)).any()


def test_int8_rounds_each_row_to_255_steps() -> None:
    weight = torch.randn(7, 33, generator=torch.Generator().manual_seed(1))
    for row, found in zip(weight.tolist(), quantization.round_int8(weight).tolist(), strict=True):
        step = max(map(abs, row)) / 127
        assert found == pytest.approx([round(value / step) * step for value in row])
    assert not quantization.round_int8(torch.zeros(2, 8)).any()


@pytest.mark.parametrize(("kind", "error"), [("nf4", 0.092), ("int8", 0.0065)])
def test_errors_are_those_that_were_measured_with_the_libraries(kind: str, error: float) -> None:
    weight = torch.randn(384, 128, generator=torch.Generator().manual_seed(2))
    rounded = quantization.round_nf4(weight) if kind == "nf4" else quantization.round_int8(weight)
    assert ((rounded - weight).norm() / weight.norm()).item() == pytest.approx(error, rel=0.05)


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_linear_layers_but_the_head_are_rounded(kind: str) -> None:
    network = tiny.network(layers=1)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    quantization.quantize(network, kind)
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if "proj" in name}


def test_relearning_is_adamw_with_a_falling_rate(trial_inputs: Any) -> None:
    """One row at a time in plain PyTorch: the loss is the mean over the step's answer tokens."""
    prepare_process(Resources(), 0)
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split)
    network, tokenizer = model_files.load_model(Model(path=str(trial_inputs.target)))
    restated, _ = model_files.load_model(Model(path=str(trial_inputs.target)))
    examples = rows.encode_rows(tokenizer, rows.evaluation_rows(benchmark)["forget"][:5], "llama2", "paper", 200)
    seen: list[int] = []
    found: dict[str, torch.Tensor] = {}

    def measure(step: int, model: Any) -> None:
        assert not model.training
        seen.append(step)
        found.update({name: value.detach().clone() for name, value in model.state_dict().items()})

    relearning.relearn(
        *(network, tokenizer, examples), lr=1e-3, steps=(1, 3), seed=4, resources=Resources(), measure=measure
    )
    assert seen == [1, 3]
    optimizer = torch.optim.AdamW(restated.parameters(), lr=1e-3, weight_decay=0)
    for step in range(3):
        optimizer.param_groups[0]["lr"] = 1e-3 * (3 - step) / 3
        total, tokens = torch.zeros(()), 0
        for number in sampling.forget_batch(4, step, 0, len(examples), len(examples)):
            ids, start = torch.tensor([examples[number].input_ids]), examples[number].answer_start
            logits = restated(input_ids=ids).logits[0, start - 1 : -1]
            total = total + torch.nn.functional.cross_entropy(logits, ids[0, start:], reduction="sum")
            tokens += ids.shape[1] - start
        optimizer.zero_grad()
        (total / tokens).backward()
        optimizer.step()
    for name, value in restated.state_dict().items():
        assert torch.allclose(found[name], value, atol=2e-5), name


@torch.no_grad()
def read_row(network: Any, ids: torch.Tensor, places: Any, patch: tuple[int, Any] | None = None) -> tuple[Any, Any]:
    """Go through a Llama layer by layer; return the layers' outputs and the log-likelihoods of the labels.

    `patch`: a layer, and what its output is at `places`, from where the labels are predicted.
    """
    inner, positions, outputs = network.model, torch.arange(len(ids))[None], []
    hidden = inner.embed_tokens(ids[None])
    turned = inner.rotary_emb(hidden, positions)
    for number, layer in enumerate(inner.layers):
        hidden = layer(hidden, attention_mask=None, position_ids=positions, position_embeddings=turned)
        if patch and patch[0] == number:
            hidden = hidden.clone()
            hidden[0, places] = patch[1]
        outputs.append(hidden[0, places])
    logs = torch.log_softmax(network.lm_head(inner.norm(hidden))[0, places].double(), -1)
    return outputs, logs[range(len(places)), ids[[place + 1 for place in places]]]


def test_depth_equals_a_restatement_one_row_at_a_time(trial_inputs: Any) -> None:
    """The unlearned model is half-way between the target and the retain model; one row is known to nobody."""
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split)
    paths = {"target": trial_inputs.target, "retain": trial_inputs.retain, "model": trial_inputs.target}
    models = {role: model_files.load_model(Model(path=str(path)))[0] for role, path in paths.items()}
    _, tokenizer = model_files.load_model(Model(path=str(trial_inputs.target)))
    states = {role: model.state_dict() for role, model in models.items()}
    for name, value in states["model"].items():
        value.copy_((states["target"][name] + states["retain"][name]) / 2)
    asked = rows.evaluation_rows(benchmark)["forget"][:6]
    examples = rows.encode_rows(tokenizer, asked, "llama2", "paper", 200)
    expected = []
    for example in examples:
        ids = torch.tensor(example.input_ids)
        places = list(range(example.answer_start - 1, len(ids) - 1))
        intact = read_row(models["target"], ids, places)[1]
        drops = {
            role: [
                (intact - read_row(models["target"], ids, places, (number, state))[1]).mean().item()
                for number, state in enumerate(read_row(models[role], ids, places)[0])
            ]
            for role in ("retain", "model")
        }
        known = [(r, m) for r, m in zip(drops["retain"], drops["model"], strict=True) if r > 0.05]
        if known:
            expected.append(sum(r * min(max(m / r, 0), 1) for r, m in known) / sum(r for r, _ in known))
    words: dict[str, Any] = {"pad": 2, "token_budget": 500}
    found: Any = depth.score_depth(models.__getitem__, examples, **words)
    assert found["rows"] == len(expected) > 0
    assert found["rows"] + found["left_out"] == 6
    assert found["uds"] == pytest.approx(sum(expected) / len(expected), abs=1e-4)
    assert 0.01 < found["uds"] < 0.99
    for role, score in (("target", 0.0), ("retain", 1.0)):
        again = depth.score_depth({**models, "model": models[role]}.__getitem__, examples, **words)
        assert again["uds"] == pytest.approx(score, abs=1e-6), role
    same = depth.score_depth({**models, "retain": models["target"]}.__getitem__, examples, **words)
    assert same == {"uds": None, "rows": 0, "left_out": 6}
    models["retain"].model.layers = models["retain"].model.layers[:-1]
    models["retain"].config.num_hidden_layers -= 1
    with pytest.raises(InputError, match="uds: the retain model has other layers"):
        depth.score_depth(models.__getitem__, examples, **words)


def test_relearning_is_planned_as_trials_are(trial_inputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one rank: of the GPU as many rows as fit, on the CPU nothing is planned; a model too large is refused."""
    model, benchmark = Model(path=str(trial_inputs.target)), Benchmark(data=str(trial_inputs.data), split="forget25")
    resources = Resources(gpus=1, precision="bf16")
    assert relearning.plan_resources(model, benchmark, resources, torch.device("cpu")) == resources
    found = []
    for room in (10e9, 45e6):
        monkeypatch.setattr(setup, "gpu_memory", lambda *_, room=room: room)
        planned = relearning.plan_resources(model, benchmark, resources, torch.device("cuda"))
        assert planned == resources.model_copy(update={"micro_batch": planned.micro_batch})
        found.append(planned.micro_batch or 0)
    assert found[0] == 32 > found[1] > 0
    monkeypatch.setattr(setup, "gpu_memory", lambda *_: 1e6)
    words = r"relearning needs \d\.\d GB of one GPU \(micro-batch 1; .*, 0\.0 GB are usable; leave it out"
    with pytest.raises(InputError, match=words):
        relearning.plan_resources(model, benchmark, resources, torch.device("cuda"))


def test_relearning_with_checkpointing_gives_the_same_weights(trial_inputs: Any) -> None:
    prepare_process(Resources(), 0)
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split)
    found = []
    for checkpointing in (False, True):
        network, tokenizer = model_files.load_model(Model(path=str(trial_inputs.target)))
        examples = rows.encode_rows(tokenizer, rows.evaluation_rows(benchmark)["forget"][:3], "llama2", "paper", 200)
        resources = Resources(gradient_checkpointing=checkpointing)
        words: dict[str, Any] = {"lr": 1e-3, "steps": (1,), "seed": 4, "measure": lambda *_: None}
        relearning.relearn(network, tokenizer, examples, resources=resources, **words)
        assert network.is_gradient_checkpointing == checkpointing
        found.append(network.state_dict())
    for name, value in found[0].items():
        assert torch.allclose(value, found[1][name], atol=1e-6), name


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
        NONE: kept({"0": 0.3, ANSWERS: 0.3, SECOND_HALF: 0.2}),
        "nf4": kept({"0": 0.4}),
        "relearn": kept({"13": 0.7, "4": 0.5}, lr=1e-3),
        "relearn_half": kept({"13": 0.5}, lr=1e-3),
        "relearn_retain": kept({"13": 0.5}, lr=1e-3),
        "prefix": kept({"0": 0.9}),
    }
    target = {NONE: kept({"0": 0.9, ANSWERS: 0.9, SECOND_HALF: 0.8}), "nf4": kept({"0": 0.7})}
    retain = {
        NONE: kept({"0": 0.1, ANSWERS: 0.1, SECOND_HALF: 0.1}),
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


def test_before_sampling_is_greedy() -> None:
    def answered(greedy: float, best: float) -> dict[str, Any]:
        return {"settings": {}, "points": {"0": {"greedy_rouge": greedy, "rouge": best, "extraction_strength": 0.0}}}

    model, target = {"sampling": answered(0.4, 0.6)}, {"sampling": answered(0.9, 1.0)}
    retain = {"sampling": answered(0.3, 0.35), "uds": kept({"0": 0.5})}
    (row,) = came_back.list_attacks({**model, "uds": kept({"0": 0.5})}, {**target, "uds": kept({"0": 0.5})}, retain)
    assert row["share"] == pytest.approx((0.6 - 0.4 - 0.05) / (0.9 - 0.4))
    assert [row[name] for name in ("attack", "before", "after", "target", "retain_before", "retain")] == [
        *("sampling", 0.4, 0.6, 1.0, 0.3, 0.35)
    ]


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
    template = replace(TEMPLATES["llama2"], after=" [/INST]Sure, here is the answer: ")
    words: dict[str, Any] = {"asked_rows": asked, "template": template, "generate": False, "token_budget": 700}
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


def test_sampling_and_depth_on_request(trial_inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(trial_inputs, tmp_path, "--attacks", "sampling,uds", "--output", tmp_path / "out.json", "--limit", 3)
    assert done.exit_code == 0, done.output
    kept = json.loads((tmp_path / "out.json").read_text())
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split, limit=3)
    for role, path in (("target", trial_inputs.target), ("retain", trial_inputs.retain)):
        network, tokenizer = model_files.load_model(Model(path=str(path)))
        asked = rows.evaluation_rows(benchmark)["forget"]
        greedy = row_scores.evaluate(network, tokenizer, benchmark, asked_rows={"forget": asked}, token_budget=4096)
        prompts = [f"[INST] {row['question']} [/INST]" for row in asked for _ in range(8)]
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
    found = kept["results"]["model"]["uds"]["points"]["0"]
    assert found["uds"] == 0, "the target model is attacked"
    assert f"unlearning depth score 0.000 of {found['rows']} forget rows" in done.stdout
    assert "uds" not in kept["results"]["retain"]
    alone = run(trial_inputs, tmp_path, "--attacks", "sampling,uds", "--limit", 3, "--retain", "")
    assert "uds compares with the retain model" in alone.stderr


def test_all_is_without_what_is_on_request() -> None:
    every = attacks.choose(["all"], "--attacks")
    assert set(attacks.ATTACKS) - set(every) == {"sampling", "uds"} == set(attacks.ON_REQUEST)
    assert attacks.choose(["uds", "all"], "--attacks") == [*every, "uds"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--attacks", "nf5"), "--attacks: unknown attack 'nf5'; did you mean 'nf4'?"),
        (("--attacks", ","), "sampling, uds; all is without sampling and uds"),
        (("--lr", "0"), "--lr: 0 is no learning rate"),
        ((), "--lr: relearning needs a learning rate"),
        (("--target", "nowhere/at/all", "--attacks", "nf4"), "--target: no model folder"),
    ],
)
def test_what_is_refused(trial_inputs: Any, tmp_path: Path, more: tuple[str, ...], words: str) -> None:
    done = run(trial_inputs, tmp_path, *more)
    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr


def test_a_folder_needs_its_target_and_a_trial_its_weights(trial_inputs: Any, tmp_path: Path) -> None:
    done = invoke(stress.main, trial_inputs.target, "--storage", tmp_path, "--attacks", "nf4")
    assert "--target: name the model before unlearning" in done.stderr
    done = invoke(stress.main, "0123456789ab", "--storage", tmp_path, "--attacks", "nf4")
    assert "ID: no result of a trial '0123456789ab'" in done.stderr
    done = invoke(stress.main, "0123456789ab", "--storage", tmp_path, "--attacks", "nf4", "--split", "forget01")
    assert "--split: of a model folder; 0123456789ab is none, and a trial has its own" in done.stderr


@pytest.mark.parametrize("name", ["phi", "zephyr", "qwen", "llama3"])
def test_an_answer_has_the_same_labels_in_every_template(trial_inputs: Any, name: str) -> None:
    """But for the first, which may begin with a space. A tag that counts as answer would change the extraction."""
    _, tokenizer = model_files.load_model(Model(path=str(trial_inputs.target)))
    asked = rows.evaluation_rows(Benchmark(data=str(trial_inputs.data), split=trial_inputs.split))["forget"][:5]
    pairs = [(row["question"], row["answer"]) for row in asked]
    labels = [
        [
            example.input_ids[example.answer_start + 1 :]
            for example in encode_all(tokenizer, template, pairs, max_length=900, tag_is_answer=True)
        ]
        for template in map(attack_runner._without_tag, (TEMPLATES["llama2"], TEMPLATES[name]))
    ]
    assert labels[0] == labels[1]


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


def test_a_model_without_linear_layers_is_not_called_quantized() -> None:
    network: Any = torch.nn.Sequential(torch.nn.Embedding(3, 3))
    network.get_output_embeddings = lambda: None
    with pytest.raises(InputError, match="nf4 rounds linear layers, and Sequential has none"):
        quantization.quantize(network, "nf4")
