"""The training loop against an independent float64 re-statement, and its equivalences."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support import reference
from tests.support.tiny import encode_rows
from trainables.benchmarks import tofu
from trainables.common.errors import TrialDiverged
from trainables.config.settings import Benchmark, Model, Resources, Training
from trainables.methods import method_constants, objectives, rectifiers
from trainables.training import engine, loop, model_files, sampling
from trainables.training.runtime import prepare_process

TOFU = tofu.TofuBenchmark()

STEPS, BATCH, SEED = 3, 6, 4


@pytest.fixture(scope="module")
def rows(trial_inputs: Any) -> dict[str, Any]:
    """The tiny model and both sides' encoded rows."""
    network, tokenizer = model_files.load_model_and_tokenizer(Model(path=str(trial_inputs.target)))
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split)
    sides = [encode_rows(tokenizer, side, "llama2", "paper", 192) for side in TOFU.training_rows(benchmark)]
    return {"network": network, "forget": sides[0], "retain": sides[1], "pad": tokenizer.pad_token_id}


def retain_side(rows: dict[str, Any], method: str) -> Any:
    """Plain fine-tuning is the case without conflict: both sides are the same rows there."""
    return rows["forget"] if method == "nll" else rows["retain"]


def train(
    rows: dict[str, Any], settings: reference.Settings, steps: int = STEPS, **changed: Any
) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    """Our loop on a copy of the model: the update and the records. `changed`: what the task has otherwise."""
    prepare_process(Resources(), SEED)
    network = copy.deepcopy(rows["network"]).float()
    training = Training(
        lr=settings.lr,
        max_steps=steps,
        epochs=100,
        batch_size=BATCH,
        weight_decay=settings.weight_decay,
        optimizer=settings.optimizer,  # type: ignore[arg-type]
        eps=settings.eps,
    )
    task = loop.TrainingTask(
        forget=rows["forget"],
        retain=retain_side(rows, settings.method),
        objective=objectives.make_objective(settings.method, method_constants.ObjectiveConstants(beta=settings.beta)),
        rectifier=rectifiers.find_rectifier_class(settings.rectifier)(settings.gamma, settings.tau),
        training=training,
        seed=SEED,
        pad=rows["pad"],
    )
    task = replace(task, **changed)
    before = reference.flat(network)
    runner = engine.create_engine(network.train(), training, Resources())
    records = list(loop.train_steps(runner, task))
    after = reference.flat(runner.module)
    runner.close()
    return after - before, records


def truth(rows: dict[str, Any], settings: reference.Settings, steps: int = STEPS) -> tuple[torch.Tensor, Any]:
    """The float64 re-statement: the update and its trace."""
    plain = reference.Reference(copy.deepcopy(rows["network"]), settings)
    before = reference.flat(plain.model)
    known = plain.sums(rows["forget"]) if settings.method == "npo" else [0.0] * len(rows["forget"])
    for step in range(steps):
        forget = sampling.draw_forget_row_numbers(SEED, step, 0, len(rows["forget"]), BATCH)
        kept = retain_side(rows, settings.method)
        retain = sampling.draw_retain_row_numbers(SEED, step, 0, len(kept), BATCH)
        plain.step(step + 1, [rows["forget"][k] for k in forget], [kept[k] for k in retain], [known[k] for k in forget])
    return reference.flat(plain.model) - before, plain.trace


SGD: dict[str, Any] = {"optimizer": "sgd", "lr": 1.0}
ADAMW: dict[str, Any] = {"optimizer": "adamw", "lr": 2e-3}
"""Steps so large that the rounding of fp32 weights (6e-8 of a weight) stays far under the update; with an eps by which
Adam does not turn the rounding of near-zero gradients into whole steps."""
CASES = [
    reference.Settings("ga", "gru", gamma=0.05, optimizer="sgd", lr=0.05),
    reference.Settings("ga", "gru", gamma=0.05, **ADAMW),
    *(reference.Settings("npo", "gru", gamma=0.8, tau=0.05, **way) for way in (SGD, ADAMW)),
    *(reference.Settings("gd", "gru", gamma=0.05, tau=0.05, **way) for way in (SGD, ADAMW)),
    reference.Settings("ga", "gru", gamma=1.0, **ADAMW),
    reference.Settings("ga", "gru", gamma=None, tau=0.05, **SGD),
    reference.Settings("npo", "none", **ADAMW),
    reference.Settings("gd", "clip", tau=0.05, **SGD),
    reference.Settings("nll", "gru", gamma=0.8, **ADAMW),
    reference.Settings("nll", "gru", gamma=0.05, tau=0.05, **SGD),
]


def name(settings: reference.Settings) -> str:
    return f"{settings.method}-{settings.rectifier}-{settings.gamma}-{settings.tau}-{settings.optimizer}"


@pytest.mark.parametrize("settings", CASES, ids=name)
def test_update_equals_float64_reference(rows: dict[str, Any], settings: reference.Settings) -> None:
    ours, records = train(rows, settings)
    theirs, trace = truth(rows, settings)
    assert reference.relative(ours, theirs) <= 1e-5
    assert [record["loss"] for record in records] == pytest.approx(trace.losses, rel=1e-5, abs=1e-6)
    assert [record["grad_norm"] for record in records] == pytest.approx(trace.norms, rel=1e-4)
    if settings.rectifier == "gru":
        if settings.method in ("ga", "nll"):
            assert all(record["rectified"] == (settings.method == "ga") for record in records), "conflicts and none"
        assert [record["cos_before"] for record in records] == pytest.approx(trace.cosines, abs=1e-5)


def test_what_is_observed_changes_nothing_and_is_the_angle_before_and_after(rows: dict[str, Any]) -> None:
    """Of one retain row every batch is the same: without average the observed gradient is the step's own."""
    one = {**rows, "retain": rows["forget"][:1]}
    for rectifier, after in (("gru", 0.0), ("none", None)):
        settings = reference.Settings("ga", rectifier, lr=1e-3, gamma=None)
        plain, _ = train(one, settings)
        observed, records = train(one, settings, observe=2)
        assert torch.equal(plain, observed)
        cosines = [record["observed_cos"] for record in records]
        assert [math.isnan(cos) for cos in cosines] == [False, True, False]
        for record, cos in list(zip(records, cosines, strict=True))[::2]:
            assert cos < 0, "a conflict"
            assert record["observed_cos_after"] == pytest.approx(cos if after is None else after, abs=1e-5)
            assert after is None or record["cos_before"] == pytest.approx(cos, abs=1e-5)


def test_retain_gradient_that_is_not_finite_stops_as_diverged(rows: dict[str, Any]) -> None:
    class Spoiled(rectifiers.GRU):
        def take_retain_gradient(self, retain: rectifiers.Shard) -> None:
            retain[0].view(-1)[0] = math.nan
            super().take_retain_gradient(retain)

    with pytest.raises(TrialDiverged, match="averaged retain gradient is nan at step 1") as stopped:
        train(rows, reference.Settings("ga", "gru", lr=1e-3), steps=1, rectifier=Spoiled(0.8, None))
    assert stopped.value.step == 1


def test_degenerate_gradient_skips_the_step_after_drawing_again(rows: dict[str, Any]) -> None:
    """GA on the rows that are the retain set too has cos = -1 exactly: no update, told in the record."""
    settings = reference.Settings("ga", "gru", lr=1e-3, gamma=1.0)
    one = {**rows, "forget": rows["forget"][:1], "retain": rows["forget"][:1]}
    update, records = train(one, settings, steps=2)
    assert torch.equal(update, torch.zeros_like(update))
    assert all(record["skipped"] and record["attempts"] == loop.MAX_BATCH_ATTEMPTS for record in records)
    _, halves = train(one, replace(settings, gamma=0.5), steps=2)
    norms = [record["average_norm"] / record["grad_norm"] for record in halves]
    assert norms == pytest.approx([0.5, 0.75], rel=1e-5), "a step's retain gradient counts once, as in Algorithm 1"
