"""Requests in a row are one plan: each trial on the model that the one before leaves; what is no row is refused."""

from pathlib import Path
from typing import Any

import pytest

from platform.plan.plan import Plan
from platform.sweep.chosen_trials import choose_trials_of_each_study
from tests.support import own_rows, shrunk_sweeps, tiny
from tests.support.small_sweep import plan_named
from tests.support.starts import write_result
from trainables.common.errors import InputError
from trainables.config.trial import Trial
from trainables.storage.file_names import WEIGHTS
from trainables.storage.folder_storage import Storage

target = own_rows.target


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A folder `requests` of three files beside the rows to retain."""
    asked = [{"question": f"Where is the {word}?", "answer": tiny.text(k, 3)} for k, word in enumerate(tiny.WORDS)]
    for number in range(3):
        tiny.write_rows(tmp_path / "requests" / f"{number}.jsonl", asked[2 * number : 2 * number + 2])
    (tmp_path / "requests" / "notes.md").write_text("no rows")
    (tmp_path / "requests" / "._0.jsonl").write_bytes(b"what macOS leaves beside 0.jsonl")
    tiny.write_rows(tmp_path / "retain.jsonl", asked[6:9])
    return tmp_path


def plan(store: Storage, target: Path, rows: Path, *more: str, strategy: str = "paper", **options: Any) -> Plan:
    given = (f"target={target}", f"requests={rows / 'requests'}", f"retain={rows / 'retain.jsonl'}")
    typed = (*given, "method=npo,gd", "rectifier.name=none,gru", "training.lr=1e-5", *more)
    return plan_named("own", store, *typed, strategy=strategy, **options)


def chains(planned: Plan) -> dict[tuple[str, str, int], list[Trial]]:
    found: dict[tuple[str, str, int], list[Trial]] = {}
    for trial in planned.trials:
        found.setdefault((trial.method, trial.rectifier.name, trial.seed), []).append(trial)
    return found


def test_each_trial_goes_on_from_the_one_before_of_its_own_method_and_seed(
    target: Path, rows: Path, store: Storage
) -> None:
    planned = plan(store, target, rows, "seed=0,1")
    found = chains(planned)
    assert len(found) == 8
    files = [str(rows / "requests" / f"{number}.jsonl") for number in range(3)]
    for first, second, third in found.values():
        assert (first.earlier_trial_id, first.target.path) == (None, str(target))
        assert [second.earlier_trial_id, third.earlier_trial_id] == [first.id(), second.id()]
        assert third.target.path == str(store.trial(second.id()) / WEIGHTS)
        assert [trial.benchmark.places["forget"] for trial in (first, second, third)] == files
        assert {part: third.benchmark.places[part] for part in ("request_01", "request_02")} == {
            "request_01": files[0],
            "request_02": files[1],
        }
        assert set(first.benchmark.places) == {"forget", "retain"}
    for number, trial in enumerate(planned.trials):
        write_result(store, trial.id(), metrics={"forget_said_any": 0.1, "utility": 0.5 + 0.01 * number})
    chosen = [trial.study() for trial in choose_trials_of_each_study(planned, store)]
    assert set(map(chosen.count, chosen)) == {2}, "a setting is chosen with all its seeds"
    assert len({trial.id() for trial in planned.trials}) == 24
    assert [(ref.role, ref.split, ref.model.path) for ref in planned.references] == [
        ("original", f"request_0{number}", str(target)) for number in (1, 2, 3)
    ]


def test_a_further_request_leaves_the_sweep_and_its_trials_as_they_are(
    target: Path, rows: Path, store: Storage
) -> None:
    before = plan(store, target, rows)
    tiny.write_rows(rows / "requests" / "3.jsonl", [{"text": tiny.text(90, 9)}])
    after = plan(store, target, rows)
    assert after.name == before.name
    assert [trial.id() for trial in after.trials[: len(before.trials)]] == [trial.id() for trial in before.trials]
    assert len(after.trials) == len(before.trials) + 4


def test_what_is_no_row_of_requests_is_refused(target: Path, rows: Path, store: Storage) -> None:
    several = r"^request_02 goes on from request_01 with the same settings: not several values of rectifier\.gamma"
    gammas = ("objective.retain_coefficient=4", "rectifier.gamma=0.1,0.8")
    both, last = (f"forget={rows / 'requests' / '0.jsonl'}",), ["benchmark.split=request_01,request_03"]
    cases: tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...] = (
        (rf"{several}; add --strategy paper", gammas, {"strategy": "grid"}),
        ("with the same settings: no", (), {"strategy": "optuna"}),
        (r"^give either forget or requests: each file in the folder requests is", both, {}),
        (r"^requests: no folder '/nowhere'; give one with a forget file for each", ("requests=/nowhere",), {}),
        (r"^benchmark\.split, requests: .* by --only benchmark\.split=", ("benchmark.split=request_01",), {}),
        (r"^benchmark\.split: request_03 goes on from request_02; name that before", (), {"only": last}),
    )
    for words, typed, options in cases:
        with pytest.raises(InputError, match=words):
            plan(store, target, rows, *typed, **options)
    for file in ("1.jsonl", "2.jsonl"):
        (rows / "requests" / file).unlink()
    with pytest.raises(InputError, match=r"^requests: .* has 1 file of rows \(.*\); give 2 to 99, a forget file for"):
        plan(store, target, rows)


def test_sets_of_muse_one_after_another_are_a_row_and_nested_ones_are_none(tmp_path: Path, store: Storage) -> None:
    given = [*shrunk_sweeps.muse(tmp_path), "method=ga"]
    for part in ("sust", "scal"):
        for number in range(1, 5):
            tiny.write_rows(tmp_path / "data" / part / f"forget_{number}.json", [{"text": tiny.text(number, 30)}])
    for part, follows in (("sust", True), ("scal", False)):
        splits = ",".join(f"news_{part}_{number}" for number in range(1, 5))
        planned = plan_named("muse_news", store, *given, f"benchmark.split={splits}", strategy="paper")
        assert {len(chain) for chain in chains(planned).values()} == {4}
        for chain in chains(planned).values():
            before = [trial.id() if follows else None for trial in chain[:-1]]
            assert [trial.earlier_trial_id for trial in chain] == [None, *before]
