"""What the end of a sweep exports and attacks, and what it says, of results that are written by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import MagicMock

import pytest
from ray.exceptions import RayTaskError

from platform.plan.build import make_plan
from platform.plan.overrides import apply
from platform.sweep import chosen_trials, prepare
from search_spaces.schema import sweep as spaces
from tests.support import own_rows, small_sweep, tiny
from tests.support.small_sweep import write_model
from tests.support.starts import write_evaluation, write_result
from trainables.common.errors import InputError
from trainables.config.trial import Trial
from trainables.storage.atomic_files import write_json
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CAME_BACK, RESULT, WEIGHTS
from trainables.storage.opening import open_storage
from trainables.trial.export import model_card

files = own_rows.files


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("own")
    files = tiny.own(folder / "rows")
    return [f"target={write_model(folder / 'mine')}", *(f"{part}={file}" for part, file in files.items())]


def measures(strength: float, utility: float) -> dict[str, float]:
    return {"forget_extraction_strength": strength, "utility": utility}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Trial, str]]:
    """What would be exported, instead of it."""
    found: list[tuple[Trial, str]] = []
    monkeypatch.setattr(chosen_trials, "_export", lambda *given: found.append(given[:2]) or "model: somewhere")
    return found


def swept(typed: list[str], folder: Path, target: float, *outcomes: tuple[float, float], **more: Any) -> Any:
    """A plan of two trials, its storage with their results and the target model's evaluation."""
    store = Storage(folder)
    plan = make_plan(apply(spaces.load_sweep("own"), typed), store, strategy="paper", only=["method=gd"])
    (reference,) = plan.references
    write_evaluation(store, reference.evaluation, measures(1.0, target))
    for trial, outcome in zip(plan.trials, outcomes, strict=True):
        write_result(store, trial.id(), **{"metrics": measures(*outcome), **more})
    return plan, store


def said(plan: Any, store: Storage) -> str:
    lines: list[str] = []
    chosen_trials.export_chosen_trial(plan, store, lines.append)
    return "\n".join(lines)


def test_the_most_removal_above_the_bar(typed: list[str], tmp_path: Path, written: Any) -> None:
    plan, store = swept(typed, tmp_path, 0.5, (0.1, 0.46), (0.3, 0.5))
    assert said(plan, store) == f"recommended: {plan.trials[0].label()} (ES 0.100, utility 0.460), model: somewhere"
    assert written[0][1].startswith(f"It is the choice among the 2 evaluated trials of a start of sweep {plan.name}: ")


def test_a_target_model_without_utility_does_not_let_a_ruined_one_pass(
    typed: list[str], tmp_path: Path, written: Any
) -> None:
    plan, store = swept(typed, tmp_path / "one", 0.0, (0.0, 0.0), (0.3, 0.2))
    printed = said(plan, store)
    assert plan.trials[1].label() in printed
    assert "; the target model's utility is 0, so the highest utility is chosen)" in printed
    assert "Here the target model's utility is 0" in written.pop()[1]
    lines: list[str] = []
    prepare._warn_of_weak_targets(plan, store, lines.append)
    assert lines[0].startswith("warning: own: the target model's utility is 0, so the highest utility is chosen; ")
    plan, store = swept(typed, tmp_path / "other", 0.0, (0.0, 0.0), (0.3, 0.0))
    assert said(plan, store).startswith("recommended: none of 2 trials, the utility of each is 0; give more or other")
    assert written == []


def test_where_nothing_was_there_to_remove_nothing_is_recommended(
    typed: list[str], tmp_path: Path, written: Any
) -> None:
    """The model card of an export says it, too."""
    plan, store = swept(typed, tmp_path, 0.5, (0.02, 0.5), (0.01, 0.5))
    (reference,) = plan.references
    assert said(plan, store).startswith("recommended: gru-gd")
    write_evaluation(store, reference.evaluation, measures(0.099, 0.5))
    why = "the model before unlearning gives away next to nothing of the rows to forget (extraction strength 0.10 of 1)"
    assert said(plan, store).startswith(f"recommended: none, {why}")
    assert len(written) == 1
    facts: dict[str, Any] = dict.fromkeys(("stopped", "why", "chosen_step"))
    for strength, told in ((0.099, True), (0.1, False)):
        facts["target_metrics"] = measures(strength, 0.5)
        assert (why in model_card._choice(facts, plan.trials[0])) is told


def test_halves_are_reported_on_the_rows_that_were_not_chosen_on(
    typed: list[str], tmp_path: Path, written: Any
) -> None:
    halves = [measures(0.1, 0.6), measures(0.9, 0.4)]
    chosen = [*typed, "selection.halves=true"]
    plan, store = swept(chosen, tmp_path, 0.5, (0.2, 0.5), (0.2, 0.5), halves=halves, status="collapsed")
    assert "(ES 0.900, utility 0.400; the target model's utility is not known" in said(plan, store)
    assert "among the 2 evaluated trials" in written[0][1]


def test_a_target_asked_in_another_template_is_told_of(tmp_path: Path) -> None:
    """What its evaluation found of the templates is said before the first trial, of no other model."""
    store = open_storage(str(tmp_path))
    references = [SimpleNamespace(role=role, split="own", evaluation=role) for role in ("original", "baseline")]
    plan: Any = SimpleNamespace(sweep=spaces.load_sweep("own"), references=references)
    heard: list[str] = []
    for role, advice in (("baseline", "'llama2' fits better"), ("original", None), ("original", "'chat' fits better")):
        write_evaluation(store, role, {"forget_extraction_strength": 0.7, "utility": 0.9})
        path = store.evaluation(role) / RESULT
        write_json(path, json.loads(path.read_text()) | {"advice": advice})
        prepare._warn_of_weak_targets(plan, store, heard.append)
    assert heard == ["warning: target: 'chat' fits better"]


def test_the_chosen_setting_is_attacked_with_all_its_seeds(tmp_path: Path) -> None:
    """By means over seeds: the best single trial is of the other rate. Only trials with weights and without attacks."""
    small, store = small_sweep.write(tmp_path), Storage(tmp_path / "runs")
    settings = ("method=gd", "rectifier.name=none", "benchmark.split=forget10", "training.lr=1e-4,1e-3", "seed=0,1")
    settings += ("stress.attacks=nf4,prefix", "selection.rule=highest_removal")
    plan = small.plan(store, *settings)
    quality = {(1e-4, 0): 0.0, (1e-4, 1): -6.0, (1e-3, 0): -1.0, (1e-3, 1): -2.0}
    for trial in plan.trials:
        metrics = {"forget_quality": quality[trial.training.lr, trial.seed], "model_utility": 0.5}
        write_result(store, trial.id(), metrics=metrics, halves=[metrics, metrics])
    chosen = chosen_trials.choose_trials(plan, store)
    assert {(trial.training.lr, trial.seed) for trial in chosen} == {(1e-3, 0), (1e-3, 1)}
    assert chosen_trials.list_to_attack(plan, store) == [], "no weights"
    for trial in chosen:
        (store.trial(trial.id()) / WEIGHTS).mkdir()
    assert chosen_trials.list_to_attack(plan, store) == chosen
    started = (store.result(chosen[0].id()) or {})["started"]
    for trial, names in zip(chosen, (("nf4", "prefix"), ("nf4",)), strict=True):
        known = {"started": started, "attacks": {name: {"left_out": None} for name in names}, "shares": []}
        write_json(store.stress(trial.id()) / CAME_BACK, known)
    assert chosen_trials.list_to_attack(plan, store) == chosen[1:], "one attack is missing"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["stress.attacks=nf5"], "stress.attacks: unknown attack 'nf5'; did you mean 'nf4'?"),
        (["stress.lr=1e-3"], "stress.lr: no attack is asked for"),
        (["stress.attacks=nf4,relearn"], "stress.lr: relearning needs a learning rate"),
    ],
)
def test_attacks_that_cannot_be_made_are_refused(tmp_path: Path, settings: list[str], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        small_sweep.write(tmp_path).plan(Storage(tmp_path / "runs"), *settings)


def test_attacks_are_on_models_of_tofu(typed: list[str], tmp_path: Path) -> None:
    sweep = apply(spaces.load_sweep("own"), [*typed, "stress.attacks=nf4"])
    with pytest.raises(InputError, match=r"stress.attacks: attacks are made on models of TOFU, not of own"):
        make_plan(sweep, Storage(tmp_path), strategy="paper")


def test_a_baseline_without_evaluation_is_warned_of_and_any_other_model_ends_the_start(
    files: dict[str, Path], store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(task: object) -> NoReturn:
        raise RayTaskError("make_evaluation", "Traceback", InputError("model: it has no tokenizer"))

    target, baseline = (small_sweep.write_model(tmp_path / name, name) for name in ("mine", "unseen"))
    chosen = [*own_rows.settings(target, files), f"baseline={baseline}"]
    plan = small_sweep.plan_named("own", store, *chosen, strategy="paper")
    monkeypatch.setattr(prepare.ray, "remote", MagicMock())
    monkeypatch.setattr(prepare.ray, "wait", lambda tasks, timeout: (tasks, []))
    monkeypatch.setattr(prepare.ray, "get", fail)
    printed: list[str] = []
    with pytest.raises(RayTaskError):
        prepare._make_evaluations(plan, store, printed.append)
    write_evaluation(store, plan.references[0].evaluation, {"utility": 0.9})
    prepare._make_evaluations(plan, store, printed.append)
    assert printed[-1] == (
        "warning: the baseline model is not evaluated, the trials run without it: model: it has no tokenizer"
    )
