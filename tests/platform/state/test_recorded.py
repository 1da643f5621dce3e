"""Trials in a range that an earlier start began: they are of the sweep again, by its file and their configurations."""

from __future__ import annotations

import hashlib
import json

from platform.plan.spaces import Space
from platform.state import manifest
from platform.state.trial_outcomes import SweepState
from tests.support.small_sweep import Small
from tests.support.starts import finish
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage

STUDY = "forget05/npo/gru"
AXES = ("rectifier.gamma=0.05,0.8", "rectifier.name=gru", "method=npo", "benchmark.split=forget05")


def begin(small: Small, store: Storage, rates: str = "log(1e-6..1e-3)") -> SweepState:
    return small.state(store, *AXES, f"training.lr={rates}", strategy="optuna", budget=6)


def make(space: Space, lr: float, **point: object) -> Trial:
    return space.make_trial({"training.lr": lr, "rectifier.gamma": 0.8, "rectifier.tau": None, "seed": 0} | point)


def test_trials_of_an_earlier_start_count_and_go_on(small: Small, store: Storage) -> None:
    state = begin(small, store)
    manifest.write_manifest(state, store, "python -m platform.sweep tofu_tiny")
    assert (len(state.plan.trials), state.number_to_run) == (1, 6)
    assert manifest.load_manifest(state.plan.name, store).trials == ()
    space = state.plan.spaces[STUDY]
    done, running, outside = make(space, 3.333e-5), make(space, 2e-4), make(space, 5e-3)
    for trial in (done, running, outside):
        store.write_trial_config(trial.id(), trial.model_dump(mode="json"))
        manifest.add_trial_to_manifest(state.plan, store, trial)
        manifest.add_trial_to_manifest(state.plan, store, trial)
    finish(store, [done, outside])
    again = begin(small, store)
    assert [trial.id() for trial in again.plan.trials[1:]] == [done.id(), running.id()]
    assert (again.done, again.number_to_run) == ({done.id()}, 5)
    sweep = manifest.write_manifest(again, store, "python -m platform.sweep tofu_tiny --resume")
    assert sweep.trials == (done.id(), running.id(), outside.id())
    assert sweep.planned_trials == 2 + 5
    assert begin(small, store, "log(1e-7..1e-2)").done == {done.id(), outside.id()}, "of a range that is widened"
    grid = small.state(store, *AXES, "training.lr=3.333e-5,1e-4")
    assert (grid.plan.name, grid.done) == (state.plan.name, {done.id()})


def test_what_later_starts_change_of_the_plan_is_listed(small: Small, store: Storage) -> None:
    """The first start's plan stays in the sweep's file, with a hash of it; a start that repeats it changes nothing."""
    started = "python -m platform.sweep tofu_tiny"
    first = manifest.write_manifest(begin(small, store), store, started)
    again = manifest.write_manifest(begin(small, store), store, f"{started} --resume")
    assert again.plan_hash == first.plan_hash == hashlib.sha256(spell_sorted(first.plan)).hexdigest()
    assert again.list_deviations() == []
    more = small.state(
        store,
        *(*AXES, "training.lr=log(1e-6..1e-2)", "seed=0,5", "selection.share=0.5", "selection.halves=true"),
        strategy="optuna",
        budget=7,
    )
    changed = manifest.write_manifest(more, store, f"{started} --seeds 0,5")
    assert (changed.plan, changed.plan_hash) == (first.plan, first.plan_hash)
    assert changed.list_deviations() == [
        "Not as planned: trials: planned 6, now 7.",
        "Not as planned: selection.share: planned 0.9, now 0.5.",
        "Not as planned: selection.halves: planned false, now true.",
        "Not as planned: seed: planned [0], now [0, 5].",
        'Not as planned: training.lr: planned {"low": 1e-06, "high": 0.001, "log": true}, '
        'now {"low": 1e-06, "high": 0.01, "log": true}.',
    ]
    moved = changed.model_copy(update={"plan": changed.describe_plan()})
    assert moved.list_deviations() == ["Not as planned: the plan in the sweep's file was edited: its hash is another."]


def spell_sorted(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
