"""Runs of objectives with another answer a row, or with a multiplier: step by step, interrupted, on two ranks."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import ranks, reference
from tests.support.interrupted import alike, configuration, finish, same
from trainables import benchmarks
from trainables.common.errors import InputError
from trainables.config.settings import Objective, Resources
from trainables.config.trial import Rectifier, Trial
from trainables.data import raw_rows
from trainables.storage.folder_storage import Storage
from trainables.training import engine, loop, model_files, sampling
from trainables.training.runtime import prepare_process
from trainables.trial import setup

ANSWERS = ("No idea.", "I cannot say.", "Nobody ever told me about that.")


@pytest.fixture
def idk(tmp_path: Path) -> Path:
    path = tmp_path / "idk.txt"
    path.write_text("# ours\n" + "\n\n".join(ANSWERS))
    return path


def trial(trial_inputs: Any, method: str, idk: Path | None = None, **training: Any) -> Trial:
    """A few steps of a method; PDU's bound is such that its weight changes each step after the first epoch."""
    settings = Objective(idk=idk and str(idk)) if method != "pdu" else PDU
    return configuration(trial_inputs, **training).model_copy(update={"method": method, "objective": settings})


PDU = Objective(retain_coefficient=0.4, retain_bound=1.0, dual_rate=0.05, dual_warmup=3)


class Run:
    """Our loop on the model in float64: the task, its records and the update."""

    def __init__(self, config: Trial) -> None:
        prepare_process(Resources(cpus=1), config.seed)
        network, self.tokenizer = model_files.load_model_and_tokenizer(config.target)
        self.start = copy.deepcopy(network)
        self.task = setup.make_training_task(config, network, self.tokenizer, torch.device("cpu"), None)
        before = reference.flat(network)
        runner = engine.create_engine(network.train(), config.training, config.resources)
        self.state = loop.make_initial_state(runner, self.task)
        self.records = list(loop.train_steps(runner, self.task, self.state))
        self.update = reference.flat(runner.module) - before
        runner.close()


def steps_of(config: Trial, run: Run) -> Iterator[tuple[list[int], list[int]]]:
    """The forget rows, counted over epochs, and the retain rows of each step, drawn by hand."""
    size, forget = config.training.batch_size, len(run.task.forget)
    for step in range(run.task.count_steps()):
        drawn = sampling.draw_forget_row_numbers(config.seed, step, 0, forget, size)
        epochs = [(step * size + place) // forget for place in range(size)]
        items = [epoch * forget + row for epoch, row in zip(epochs, drawn, strict=True)]
        yield items, sampling.draw_retain_row_numbers(config.seed, step, 0, len(run.task.retain), size)


def test_dpo_steps_equal_a_float64_restatement(trial_inputs: Any, idk: Path) -> None:
    """Over an epoch's end amid a batch; S^0 is the target model's; the file's answers stand behind the questions."""
    config = trial(trial_inputs, "idk_dpo", idk, max_steps=4, batch_size=16, lr=0.05, optimizer="sgd")
    config = config.model_copy(update={"rectifier": Rectifier()})
    run = Run(config)
    plain = reference.Reference(run.start, reference.Settings("", "none", lr=0.05, optimizer="sgd"))
    before, beta, losses = reference.flat(plain.model), 0.1, []
    forget: Any = run.task.forget
    frozen = reference.Reference(copy.deepcopy(run.start), plain.settings)
    seen = set()
    for number, (items, kept) in enumerate(steps_of(config, run), 1):
        parts = []
        for item in items:
            row = forget[item]
            text = run.tokenizer.decode(row.other.input_ids, skip_special_tokens=True)
            assert text.endswith(ANSWERS)
            seen.add(next(answer for answer in ANSWERS if text.endswith(answer)))
            prompt = run.tokenizer.decode(row.input_ids[: row.answer_start], skip_special_tokens=True)
            assert text.startswith(prompt.strip())
            lost, won = (plain.row_losses(one).sum() - frozen.sums([one])[0] for one in (row, row.other))
            parts.append(-2 / beta * torch.nn.functional.logsigmoid(beta * (lost - won)))
        loss = torch.stack(parts).mean() + plain.mean_nll([run.task.retain[place] for place in kept])
        losses.append(loss.item())
        plain._apply(number, plain.gradient(loss))
    assert seen == set(ANSWERS)
    assert [record["loss"] for record in run.records] == pytest.approx(losses, rel=1e-5)
    assert reference.relative(run.update, reference.flat(plain.model) - before) <= 1e-5


@pytest.mark.parametrize("rectifier", ["none", "gru"])
def test_multiplier_follows_the_retain_loss_of_each_step(trial_inputs: Any, rectifier: str) -> None:
    """Also where the rectifier's pass is the same one; the update is that of these weights."""
    config = trial(trial_inputs, "pdu", max_steps=5, batch_size=16, lr=0.02, optimizer="sgd")
    chosen = Rectifier(name="gru", gamma=0.5) if rectifier == "gru" else Rectifier()
    run = Run(config.model_copy(update={"rectifier": chosen}))
    settings = reference.Settings("", rectifier, lr=0.02, optimizer="sgd", gamma=chosen.gamma)
    plain: Any = reference.Reference(run.start, settings)
    before, weight, weights, losses = reference.flat(plain.model), 0.4, [], []
    warm = 3 * len(run.task.forget) // 16
    assert 0 < warm < 4
    for number, (items, kept) in enumerate(steps_of(config, run), 1):
        parts = []
        for row in (run.task.forget[item % len(run.task.forget)] for item in items):
            logits = plain.model(input_ids=torch.tensor([row.input_ids])).logits[0, row.answer_start :]
            parts.append((logits.max(1).values - logits.mean(1)) ** 2)
        retain = plain.mean_nll([run.task.retain[place] for place in kept])
        plain.objective = lambda *_, parts=parts, retain=retain, weight=weight: (
            torch.cat(parts).mean() + weight * retain
        )
        plain.step(number, [], [run.task.retain[place] for place in kept], [])
        weights.append(weight)
        losses.append(retain.item())
        weight = max(0.0, weight + 0.05 * (losses[-1] - 1.0)) if number > warm else weight
    assert len(set(weights)) > 2
    assert [record["retain_multiplier"] for record in run.records] == pytest.approx(weights, rel=1e-5)
    assert [record["retain_loss"] for record in run.records] == pytest.approx(losses, rel=1e-5)
    assert [record["loss"] for record in run.records] == pytest.approx(plain.trace.losses, rel=1e-5)
    assert reference.relative(run.update, reference.flat(plain.model) - before) <= 1e-5


@pytest.mark.parametrize("rectifier", ["none", "gru"])
def test_a_balanced_retain_gradient_is_as_long_as_the_forget_gradient(trial_inputs: Any, rectifier: str) -> None:
    """Whatever the forget coefficient; the rectifier's pass serves for it, and it rectifies the sum."""
    config = trial(trial_inputs, "gd", max_steps=3, batch_size=8, lr=0.02, optimizer="sgd")
    chosen = Rectifier(name="gru", gamma=0.5) if rectifier == "gru" else Rectifier()
    balanced = Objective(retain_coefficient="balanced", forget_coefficient=0.3)
    run = Run(config.model_copy(update={"rectifier": chosen, "objective": balanced}))
    settings = reference.Settings("", rectifier, lr=0.02, optimizer="sgd", gamma=chosen.gamma)
    plain: Any = reference.Reference(run.start, settings)
    before, weights = reference.flat(plain.model), []
    for number, (items, kept) in enumerate(steps_of(config, run), 1):
        forget = [run.task.forget[item % len(run.task.forget)] for item in items]
        retain = [run.task.retain[place] for place in kept]
        norms = [plain.gradient(sign * plain.mean_nll(rows)).norm() for sign, rows in ((-0.3, forget), (1, retain))]
        weights.append(float(norms[0] / norms[1]))
        loss = -0.3 * plain.mean_nll(forget) + weights[-1] * plain.mean_nll(retain)
        plain.objective = lambda *_, loss=loss: loss
        plain.step(number, [], retain, [])
    assert [record["retain_multiplier"] for record in run.records] == pytest.approx(weights, rel=1e-5)
    assert [record["loss"] for record in run.records] == pytest.approx(plain.trace.losses, rel=1e-5, abs=1e-7)
    # two gradients of one length that nearly cancel: the sum has more of fp32's rounding than either
    assert reference.relative(run.update, reference.flat(plain.model) - before) <= 2e-4


def test_a_balanced_coefficient_is_refused_where_there_is_no_single_retain_gradient(trial_inputs: Any) -> None:
    balanced = Objective(retain_coefficient="balanced")
    for method, name in (("pdu", "none"), ("gd", "gem")):
        changed = {"method": method, "objective": balanced, "rectifier": Rectifier(name=name)}
        with pytest.raises(InputError, match=r"retain_coefficient: balanced .*(pdu|gem)"):
            setup.check_inputs_unchanged(configuration(trial_inputs).model_copy(update=changed))


def test_interrupted_trials_go_on_bit_for_bit(trial_inputs: Any, idk: Path, tmp_path: Path) -> None:
    """Answers, S^0 and multiplier are the same over an epoch's end; micro-batches on two ranks give alike results.

    What two ranks keep of an interrupted trial: test_resume.
    """
    jobs, pairs = [], []
    for method in ("idk_dpo", "pdu"):
        config = trial(trial_inputs, method, idk, max_steps=4, batch_size=16)
        whole, complete = finish(config, tmp_path / method / "whole")
        assert whole["status"] == "finished"
        finish(config, tmp_path / method / "broken", stop_after=3)
        resumed, store = finish(config, tmp_path / method / "broken")
        assert resumed["training"]["resumed_at"] == 2
        same(complete, store, config)
        spread = config.model_copy(update={"resources": Resources(ranks=2, zero_stage=2, micro_batch=4)})
        jobs.append({"trial": spread.model_dump(), "storage": str(tmp_path / "two")})
        pairs.append((complete.trial(config.id()), spread.id()))
    ranks.run(2, jobs, trial_inputs, tmp_path)
    for expected, key in pairs:
        alike(expected, Storage(tmp_path / "two").trial(key), trial_inputs.target)


def test_changed_answers_and_texts_are_refused(trial_inputs: Any, idk: Path, tmp_path: Path) -> None:
    known = raw_rows.fingerprint_idk_answers(str(idk))
    config = trial(trial_inputs, "idk_nll", idk)
    config = config.model_copy(update={"objective": Objective(idk=str(idk), idk_fingerprint=known)})
    setup.check_inputs_unchanged(config)
    idk.write_text("Another answer.")
    with pytest.raises(InputError, match=r"objective\.idk: .* changed after this trial was planned"):
        setup.check_inputs_unchanged(config)
    for name in ("muse", "wmdp"):
        with pytest.raises(InputError, match=f"needs questions to forget; {name} has texts"):
            benchmarks.get_benchmark(name).check_rows_are_questions(config.benchmark.model_copy(update={"name": name}))
