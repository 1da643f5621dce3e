"""Optuna's journal of a sweep: a view that Optuna opens, with our ids, and that is made again from results."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from werkzeug.test import Client

from platform.driver import run_on_ray
from platform.plan.space import Space
from platform.schedule.dashboard_journal import Journal, sync_journal
from platform.state import manifest
from platform.state.trial_outcomes import SweepState
from tests.support.small_sweep import Small
from tests.support.starts import finish
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage

STUDY = "forget05/npo/gru"
AXES = ("training.lr=log(1e-6..1e-3)", "rectifier.gamma=0.05,0.4,0.8", "rectifier.tau=1,none", "method=npo")


@pytest.fixture
def state(small: Small, store: Storage) -> SweepState:
    """A sweep with a range, begun."""
    found = small.state(store, *AXES, "benchmark.split=forget05", strategy="optuna", budget=6)
    manifest.write_manifest(found, store, "python -m platform.sweep tofu_tiny")
    return found


def read(store: Storage, name: str) -> list[optuna.trial.FrozenTrial]:
    """Return the trials as Optuna, and so its dashboard, opens them."""
    path = store.root / "optuna" / f"{name}.log"
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    return optuna.load_study(study_name=f"{name} {STUDY}", storage=storage).trials


def make(space: Space, lr: float, tau: float | None) -> Trial:
    return space.make({"training.lr": lr, "rectifier.gamma": 0.4, "rectifier.tau": tau})


def measured(quality: float, utility: float) -> dict[str, Any]:
    """Return what a result says of such goals, on either half of the rows."""
    metrics = {"forget_quality": quality, "model_utility": utility}
    return {"metrics": metrics, "halves": [metrics, metrics]}


def test_optuna_opens_it_and_sees_settings_goals_and_our_ids(state: SweepState, store: Storage) -> None:
    sweep = manifest.load_manifest(state.plan.name, store)
    space, journal = state.plan.spaces[STUDY], Journal(sweep, store)
    trials = [make(space, lr, tau) for lr, tau in ((1e-5, None), (3e-5, 1.0))]
    journal.add(trials[0], (-3.0, 0.4))
    journal.add(trials[1], None)
    shown = read(store, sweep.label)
    assert [one.state for one in shown] == [TrialState.COMPLETE, TrialState.FAIL]
    assert shown[0].values == [-3.0, 0.4]
    assert shown[0].params == {"training.lr": 1e-5, "rectifier.gamma": 0.4, "rectifier.tau": "none"}
    assert [one.user_attrs["id"] for one in shown] == [trial.id() for trial in trials]
    assert shown[1].user_attrs["name"] == "gru-npo-forget05-g0.4-t1-lr3e-05-s0"
    assert Path(shown[1].user_attrs["folder"].removeprefix("file://")) == store.trial(trials[1].id())
    assert (
        repr(shown[0].distributions["training.lr"]) == "FloatDistribution(high=0.001, log=True, low=1e-06, step=None)"
    )


def test_the_dashboard_shows_goals_names_ids_and_links(state: SweepState, store: Storage) -> None:
    """optuna-dashboard itself, asked as its page asks it."""
    dashboard = pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed (extra test)")
    journal = Journal(manifest.load_manifest(state.plan.name, store), store)
    done, failed = (make(state.plan.spaces[STUDY], lr, None) for lr in (1e-5, 3e-5))
    journal.add(done, (-3.0, 0.4))
    journal.add(failed, None)
    client = Client(dashboard.wsgi(str(journal.path)))
    (summary,) = client.get("/api/studies").get_json()["study_summaries"]
    assert summary["study_name"] == f"{journal.sweep.label} {STUDY}"
    study = client.get(f"/api/studies/{summary['study_id']}").get_json()
    assert study["objective_names"] == ["FQ, more is better", "MU, more is better"]
    shown = [{item["key"]: item["value"] for item in one["user_attrs"]} for one in study["trials"]]
    assert [one["id"] for one in shown] == [done.id(), failed.id()]
    assert [one["name"] for one in shown] == [f"gru-npo-forget05-g0.4-tnone-lr{lr}-s0" for lr in ("1e-05", "3e-05")]
    assert [one["folder"] for one in shown] == [store.trial(trial.id()).as_uri() for trial in (done, failed)]
    assert [(one["state"], one.get("values")) for one in study["trials"]] == [("Complete", [-3.0, 0.4]), ("Fail", None)]
    assert {one["name"] for one in study["trials"][0]["params"]} == {path.partition("=")[0] for path in AXES[:3]}


@pytest.mark.parametrize("damage", ["none", "lost", "cut", "nonsense"])
def test_it_is_made_again_from_results(state: SweepState, store: Storage, damage: str) -> None:
    """With what a trial's result says now, and without trials whose results were set aside."""
    goals = {1e-5: (-3.0, 0.4), 3e-5: None, 1e-4: (-1.0, 0.2), 3e-4: (-2.0, 0.3)}
    trials = {lr: make(state.plan.spaces[STUDY], lr, None) for lr in goals}
    journal = Journal(manifest.load_manifest(state.plan.name, store), store)
    for lr, trial in trials.items():
        manifest.list_trial(state.plan, store, trial)
        journal.add(trial, (-9.0, 0.9))
        if (found := goals[lr]) and lr < 3e-4:
            finish(store, [trial], **measured(*found))
    finish(store, [trials[3e-5]], "failed")
    damages = {
        "lost": journal.path.unlink,
        "cut": functools.partial(journal.path.write_bytes, journal.path.read_bytes()[:-30]),
        "nonsense": functools.partial(journal.path.write_text, "no journal\n{}\n"),
    }
    if damage in damages:
        damages[damage]()
    sweep = manifest.load_manifest(state.plan.name, store)
    for _ in range(2):
        assert sync_journal(sweep, store) is not None
    Journal(sweep, store).add(trials[3e-4], goals[3e-4])
    shown = {one.user_attrs["id"]: one.values and tuple(one.values) for one in read(store, sweep.label)}
    assert shown == {trials[lr].id(): found for lr, found in goals.items()}
    assert [path.name for path in journal.path.parent.iterdir()] == [journal.path.name]


def test_sync_makes_it_of_a_searched_sweep_alone(state: SweepState, store: Storage) -> None:
    sweep = manifest.load_manifest(state.plan.name, store).model_copy(update={"command": "sweep", "commands": ()})
    assert sync_journal(sweep.model_copy(update={"strategy": "grid"}), store) is None
    journal = sync_journal(sweep, store)
    assert journal is not None
    assert journal.path == store.root / "optuna" / f"{sweep.label}.log"


def test_a_journal_that_cannot_be_written_stops_no_sweep(
    state: SweepState, store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(manifest.load_manifest(state.plan.name, store), store)
    trial = make(state.plan.spaces[STUDY], 1e-5, None)
    with monkeypatch.context() as patch:
        patch.setattr(JournalFileBackend, "append_logs", lambda *_: {}["lost"])
        journal.try_add(trial, (-3.0, 0.4))
    journal.try_add(trial, (float("nan"), 0.4))  # Optuna refuses it
    journal.try_add(trial, (-3.0, 0.4))
    assert len(read(store, journal.sweep.label)) == 1


def test_the_whole_journal_is_sent_when_a_run_ends(
    state: SweepState, store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an object store has is the journal as the last trial left it."""
    sweep, sent = manifest.load_manifest(state.plan.name, store), []
    journal, trial = Journal(sweep, store), make(state.plan.spaces[STUDY], 1e-5, None)

    def tune(*_: object) -> None:
        journal.add(trial, (-3.0, 0.4))

    for name in ("Hub", "prepare", "start_mirror", "export_chosen_trial"):
        monkeypatch.setattr(run_on_ray, name, MagicMock())
    monkeypatch.setattr(run_on_ray, "_tune", tune)
    monkeypatch.setattr(store, "try_push", lambda path: sent.append((path, path.read_bytes())))
    run_on_ray.prepare_and_tune(
        state, store, "python -m platform.sweep tofu_tiny", MagicMock(), MagicMock(), MagicMock()
    )
    assert sent[-1:] == [(journal.path, journal.path.read_bytes())]
