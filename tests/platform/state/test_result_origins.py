"""What finished trials tell of the rest: results of other code, and GPU-hours that were measured."""

from __future__ import annotations

from typing import Any

import pytest

from platform.plan.build import make_plan
from platform.plan.remaining_time import Measured, estimate_gpu_hours, estimate_seconds, measure
from platform.state import result_origins
from platform.state.trial_outcomes import scan
from search_spaces.schema import sweep as spaces
from tests.support.small_sweep import Small
from tests.support.starts import finish
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.storage.names import RESULT
from trainables.training.task_vectors import forget_batches

VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0", "deepspeed": "0.19.8", "scipy": "1.17.1"}


def result(
    commit: str | None = "0a1b2c3d4e5f", seconds: float = 1800.0, code: str | None = "c0de", **versions: str
) -> dict[str, Any]:
    return {
        "status": "finished",
        "metrics": {},
        "commit": commit,
        **({"code": code} if code else {}),
        "versions": VERSIONS | versions,
        "seconds": {"total": seconds},
        "config": {"resources": {"ranks": 2, "gpus": 1}},
    }


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This checkout, as if it were a known one."""
    monkeypatch.setattr(result_origins.provenance, "commit", lambda: ("0a1b2c3d4e5f", False))
    monkeypatch.setattr(result_origins.provenance, "versions", lambda: VERSIONS)
    monkeypatch.setattr(result_origins.provenance, "hash_code", lambda *names: "c0de")


def warn(*results: dict[str, Any]) -> str | None:
    return result_origins.describe_other_code(results, "result", "make them again")


HERE = "commit 0a1b2c3d4e5f, code c0de"


def test_results_of_other_code_are_counted_by_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another commit with the same modules is no news, nor is a new custom method for the published ones."""
    assert warn() is warn(result(), result(scipy="1.0"), result("ffff"), result(None)) is None
    others = (result("ffff", code="01d"), result("ffff", code="01d"), result(torch="2.12.0"), result(code=None))
    assert warn(result(), *others) == (
        f"4 results made by other code than {HERE}: 2 at commit ffff, code 01d; 1 at torch 2.12.0; "
        "1 at commit 0a1b2c3d4e5f, code unknown; make them again"
    )
    monkeypatch.setattr(result_origins.provenance, "hash_code", lambda *names: "feed" if "known" in names else "c0de")
    published, own = ({"config": result()["config"] | {"method": name}} for name in ("npo", "known"))
    assert warn(result() | published, result(code="feed") | own) is None
    assert "1 at commit 0a1b2c3d4e5f, code beef" in (warn(result(code="beef") | own) or "")


def test_time_of_a_trial_is_measured_on_what_is_done() -> None:
    """Half an hour on two ranks with a GPU each is one GPU-hour."""
    for count, each in ((2, None), (3, 3600.0)):
        assert measure([result()] * count).gpu_seconds_per_trial == each
    failed = result(seconds=9e9) | {"status": "failed"}
    assert measure([*[result()] * 3, failed]) == Measured(3, 3 * 3600.0)


def test_what_trials_share_is_told_where_other_code_made_it(small: Small, store: Storage) -> None:
    """A reference evaluation, a model and a direction."""
    plan = small.plan(store, only=["method=tru", "benchmark.split=forget01"])
    state = scan(plan, store)
    assert state.warnings == ()
    for reference in plan.references:
        atomic_files.write_json(store.evaluation(reference.evaluation) / RESULT, result("ffff", code="01d"))
    (direction,) = state.directions
    folder, other = forget_batches.direction_folder(direction, store), {"commit": "ffff", "code": "01d"}
    atomic_files.write_json(folder / RESULT, other | {"versions": VERSIONS})
    count = len(plan.references) + 1
    (warning,) = scan(plan, store).warnings
    assert warning == (
        f"{count} shared artifacts made by other code than {HERE}: {count} at commit ffff, "
        f"code 01d; trials start from or are compared with these; to make them again, move {store.root}/shared away"
    )
    plan = make_plan(spaces.load_sweep("quickstart"), store)
    model = store.model(plan.recipes[0].id())
    atomic_files.write_json(model / "recipe.json", other | {"versions": VERSIONS | {"torch": "2.12.0"}})
    assert "at commit ffff, code 01d, torch 2.12.0" in scan(plan, store).warnings[0]


def timed(seconds: float) -> dict[str, Any]:
    return {name: value for name, value in result(seconds=seconds).items() if name not in ("status", "config")}


def test_estimate_of_gpu_hours_is_refined(store: Storage) -> None:
    """The plan of a sweep on GPUs, before and after its first four trials."""
    sweep = spaces.load_sweep("quickstart")
    sweep = sweep.model_copy(update={"resources": sweep.resources.model_copy(update={"gpus": 1.0})})
    plan = make_plan(sweep, store)
    before, basis = estimate_gpu_hours(plan, len(plan.trials), Measured())
    assert before is not None
    assert "FLOP/s" in (basis or "")
    finish(store, plan.trials[:4], **timed(3600.0))
    measured = scan(plan, store).measured
    hours, basis = estimate_gpu_hours(plan, 11, measured)
    assert hours == pytest.approx(11)
    assert (basis or "").startswith("for the 11 left, as the 4 that are done took; the estimate of all was")
    assert estimate_gpu_hours(plan, 0, measured)[0] == before


def test_time_without_gpus_is_told_after_the_first_trials(store: Storage) -> None:
    """Eleven that take as long as the four before them, three at a time: four rounds."""
    plan = make_plan(spaces.load_sweep("quickstart"), store)
    assert estimate_seconds(plan, 15, Measured(), 2) == (None, None)
    finish(store, plan.trials[:4], **timed(60.0))
    measured = scan(plan, store).measured
    assert estimate_seconds(plan, 11, measured, 3) == (240, "about 60 s each, as the 4 that are done took")
