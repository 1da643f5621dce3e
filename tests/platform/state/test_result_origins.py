"""Results of other code, and what trials share that other code made, are named."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from platform.plan.build import make_plan
from platform.plan.spaces import StudySpace
from platform.state import manifest
from platform.state.trial_outcomes import SweepState, describe_code_change, read_sweep_state
from search_spaces.schema import sweep as spaces
from tests.support import small_sweep
from tests.support.small_sweep import Small
from tests.support.starts import finish
from trainables.common import provenance
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import RESULT
from trainables.storage.folder_storage import Storage

VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0", "deepspeed": "0.19.8", "scipy": "1.17.1"}


def result(commit: str | None = "0a1b2c3d4e5f", code: str | None = "c0de", **versions: str) -> dict[str, Any]:
    return {
        "status": "finished",
        "metrics": {},
        "commit": commit,
        **({"code": code} if code else {}),
        "versions": VERSIONS | versions,
        "config": {"resources": {"ranks": 2, "gpus": 1}},
    }


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This checkout, as if it were a known one."""
    monkeypatch.setattr(provenance, "read_git_state", lambda: ("0a1b2c3d4e5f", False))
    monkeypatch.setattr(provenance, "read_package_versions", lambda: VERSIONS)
    monkeypatch.setattr(provenance, "hash_result_code", lambda *names: "c0de")


def warn(*results: dict[str, Any]) -> str:
    return "".join(describe_code_change(results, "result", "make them again"))


HERE = "commit 0a1b2c3d4e5f, code c0de"


def test_results_of_other_code_are_counted_by_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another commit with the same modules is no news, nor is a new custom method for the published ones."""
    assert warn() == warn(result(), result(scipy="1.0"), result("ffff"), result(None)) == ""
    others = (result("ffff", code="01d"), result("ffff", code="01d"), result(torch="2.12.0"), result(code=None))
    assert warn(result(), *others) == (
        f"4 results made by other code than {HERE}: 2 at commit ffff, code 01d; 1 at torch 2.12.0; "
        "1 at commit 0a1b2c3d4e5f, code unknown; make them again"
    )
    monkeypatch.setattr(provenance, "hash_result_code", lambda *names: "feed" if "known" in names else "c0de")
    published, own = ({"config": result()["config"] | {"method": name}} for name in ("npo", "known"))
    assert warn(result() | published, result(code="feed") | own) == ""
    assert "1 at commit 0a1b2c3d4e5f, code beef" in warn(result(code="beef") | own)


def test_what_trials_share_is_told_where_other_code_made_it(small: Small, store: Storage) -> None:
    """A reference evaluation, a model and a direction."""
    plan = small.plan(store, only=["method=tru", "benchmark.split=forget01"])
    state = read_sweep_state(plan, store)
    assert state.warnings == ()
    for reference in plan.references:
        atomic_files.write_json(store.evaluation(reference.evaluation) / RESULT, result("ffff", code="01d"))
    (direction,) = state.directions
    folder, other = store.direction(direction.id()), {"commit": "ffff", "code": "01d"}
    atomic_files.write_json(folder / RESULT, other | {"versions": VERSIONS})
    count = len(plan.references) + 1
    (warning,) = read_sweep_state(plan, store).warnings
    assert warning == (
        f"{count} shared artifacts made by other code than {HERE}: {count} at commit ffff, "
        f"code 01d; trials start from or are compared with these; to make them again, move {store.root}/shared away"
    )
    plan = make_plan(spaces.import_sweep("quickstart"), store)
    model = store.model(plan.recipes[0].id())
    atomic_files.write_json(model / "recipe.json", other | {"versions": VERSIONS | {"torch": "2.12.0"}})
    assert "at commit ffff, code 01d, torch 2.12.0" in read_sweep_state(plan, store).warnings[0]


AXES = ("rectifier.gamma=0.05,0.8", "rectifier.name=gru", "method=npo", "benchmark.split=forget05")


def begin(small: Small, store: Storage, rates: str = "log(1e-6..1e-3)") -> SweepState:
    return small.state(store, *AXES, f"training.lr={rates}", strategy="optuna", budget=6)


def make(space: StudySpace, lr: float, **point: object) -> Trial:
    return space.make_trial({"training.lr": lr, "rectifier.gamma": 0.8, "rectifier.tau": None, "seed": 0} | point)


def test_trials_of_an_earlier_start_count_and_go_on(small: Small, store: Storage) -> None:
    state = begin(small, store)
    manifest.write_manifest(state, store, "python -m platform.sweep tofu_tiny")
    assert (len(state.plan.trials), state.number_to_run) == (1, 6)
    assert manifest.find_ready_sweeps(state.plan.name, store)[0].trials == ()
    space = state.plan.spaces["forget05/npo/gru"]
    done, running, outside = make(space, 3.333e-5), make(space, 2e-4), make(space, 5e-3)
    for trial in (done, running, outside):
        store.write_trial_config(trial.id(), trial.model_dump(mode="json"))
        manifest.add_trial_to_manifest(state.plan, store, trial)
        manifest.add_trial_to_manifest(state.plan, store, trial)
    finish(store, [done, outside])
    again = begin(small, store)
    assert [trial.id() for trial in again.plan.trials[1:]] == [done.id(), running.id()]
    assert (set(again.done), again.number_to_run) == ({done.id()}, 5)
    sweep = manifest.write_manifest(again, store, "python -m platform.sweep tofu_tiny --resume")
    assert sweep.trials == (done.id(), running.id(), outside.id())
    assert sweep.planned_trial_count == 2 + 5
    assert begin(small, store, "log(1e-7..1e-2)").done.keys() == {done.id(), outside.id()}, "of a range that is widened"
    grid = small.state(store, *AXES, "training.lr=3.333e-5,1e-4")
    assert (grid.plan.name, set(grid.done)) == (state.plan.name, {done.id()})


def test_trials_on_rows_that_were_edited_leave_the_sweep(store: Storage, tmp_path: Path) -> None:
    """Those of the other split stay; the reference evaluations are this start's."""
    mine = small_sweep.write(tmp_path / "mine")
    chosen = ("method=ga", "rectifier.name=none", "benchmark.split=forget05,forget10")
    first = mine.state(store, *chosen)
    manifest.write_manifest(first, store, "python -m platform.sweep tofu_tiny")
    for trial in first.plan.trials:
        store.write_trial_config(trial.id(), trial.model_dump(mode="json"))
    rows = mine.data / "forget05.json"
    rows.write_text(rows.read_text().replace('"answer": "', '"answer": "So: ', 1))
    again = mine.state(store, *chosen)
    sweep = manifest.write_manifest(again, store, "python -m platform.sweep tofu_tiny")
    before, now = ([trial.id() for trial in state.plan.trials] for state in (first, again))
    assert (sweep.name, before[0] == now[0], before[1] == now[1]) == (first.plan.sweep.name, False, True)
    assert ({*sweep.trials}, sweep.hash) == ({*now}, first.plan.hash)
    assert {ref.evaluation for ref in sweep.references} == {ref.evaluation for ref in again.plan.references}


def test_what_later_starts_change_of_the_plan_is_listed(small: Small, store: Storage) -> None:
    """The first start's plan stays in the sweep's file, with a hash of it; a start that repeats it changes nothing."""
    started = "python -m platform.sweep tofu_tiny"
    first = manifest.write_manifest(begin(small, store), store, started)
    again = manifest.write_manifest(begin(small, store), store, f"{started} --resume")
    spelt = json.dumps(first.plan, sort_keys=True, separators=(",", ":"))
    assert again.plan_hash == first.plan_hash == hashlib.sha256(spelt.encode()).hexdigest()
    assert again.list_plan_deviations() == []
    more = small.state(
        store,
        *(*AXES, "training.lr=log(1e-6..1e-2)", "seed=0,5", "selection.share=0.5", "selection.halves=true"),
        strategy="optuna",
        budget=7,
    )
    changed = manifest.write_manifest(more, store, f"{started} --seeds 0,5")
    assert (changed.plan, changed.plan_hash) == (first.plan, first.plan_hash)
    assert changed.list_plan_deviations() == [
        "Not as planned: seed: planned [0], now [0, 5].",
        "Not as planned: selection.halves: planned false, now true.",
        "Not as planned: selection.share: planned 0.9, now 0.5.",
        'Not as planned: training.lr: planned {"high": 0.001, "log": true, "low": 1e-06}, '
        'now {"high": 0.01, "log": true, "low": 1e-06}.',
        "Not as planned: trials: planned 6, now 7.",
    ]
    moved = changed.model_copy(update={"plan": changed.describe_plan()})
    assert moved.list_plan_deviations() == [
        "Not as planned: the plan in the sweep's file was edited: its hash is another."
    ]
