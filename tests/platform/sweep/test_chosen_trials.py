"""What the end of a sweep exports and attacks, and what it says, of results that are written by hand."""

import contextlib
import io
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis import report
from platform.plan.build import make_plan
from platform.plan.overrides import apply_overrides
from platform.state import manifest
from platform.state.trial_outcomes import read_sweep_state
from platform.status import collect_sweep_status
from platform.sweep import chosen_trials, finish, prepare
from platform.tracking.mirror import start_mlflow_mirror
from search_spaces.schema import sweep as spaces
from tests.support import small_sweep, tiny
from tests.support.small_sweep import write_model
from tests.support.starts import write_evaluation, write_result
from trainables.config.trial import Trial
from trainables.storage.atomic_files import write_json
from trainables.storage.file_names import ATTACK_RESULTS_FILE, EXPORT_FACTS_FILE, WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.trial.export import model_folder


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("own")
    files = tiny.own(folder / "rows")
    return [f"target={write_model(folder / 'mine')}", *(f"{part}={file}" for part, file in files.items())]


def measures(strength: float, utility: float) -> dict[str, float]:
    return {"forget_said_any": strength, "utility": utility}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Trial, str]]:
    """What would be exported, instead of it."""
    found: list[tuple[Trial, str]] = []
    monkeypatch.setattr(chosen_trials, "_export", lambda *given: found.append(given[:2]) or "Its model: somewhere")
    return found


def swept(typed: list[str], folder: Path, target: float, *outcomes: tuple[float, float], **more: Any) -> Any:
    """A plan of two trials, its storage with their results and the target model's evaluation."""
    store = Storage(folder)
    plan = make_plan(
        apply_overrides(
            spaces.import_sweep("own"), [*typed, "training.lr=1e-5", "method=gd", "rectifier.name=none,gru"]
        ),
        store,
        strategy="paper",
    )
    (reference,) = plan.references
    write_evaluation(store, reference.evaluation, measures(1.0, target))
    for trial, outcome in zip(plan.trials, outcomes, strict=True):
        given = {"metrics": measures(*outcome), "config": trial.model_dump(mode="json")} | more
        write_result(store, trial.id(), **given)
        store.write_trial_config(trial.id(), given["config"])
    return plan, store


def said(plan: Any, store: Storage) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        chosen_trials.print_verdicts_and_export_chosen(plan, store)
    return printed.getvalue().strip()


def test_the_verdict_is_that_of_the_report_and_of_status(typed: list[str], tmp_path: Path, written: Any) -> None:
    plan, store = swept(typed, tmp_path, 0.5, (0.1, 0.46), (0.3, 0.5))
    manifest.write_manifest(read_sweep_state(plan, store), store, "python -m platform.sweep own")
    sentence = f"Ship {plan.label(plan.trials[0])}: said 0.100, utility 0.460."
    assert said(plan, store) == f"verdict: {sentence} Its model: somewhere"
    assert written[0][1].startswith(f"It is the choice among the 2 evaluated trials of sweep {plan.name}: ")
    (sweep,) = manifest.find_ready_sweeps("own", store)
    assert collect_sweep_status(sweep, store)["verdicts"] == {"own": sentence}
    lead, export, *_ = (report.build_report("own", store) / "tables/verdict.md").read_text().splitlines()
    assert lead.startswith(f"Ship trial {plan.trials[0].id()} (")
    assert lead.endswith("): said 0.100, utility 0.460.")
    assert export.startswith(f"To write its model: `python -m trainables.export {plan.trials[0].id()} ")
    started = (store.result(plan.trials[0].id()) or {})["started"]
    for trial, run in zip(plan.trials, (started, "of an earlier run"), strict=True):
        write_json(store.root / "exports" / trial.id() / EXPORT_FACTS_FILE, {"made_with": {"started": run}})
    _, export, *_ = (report.build_report("own", store) / "tables/verdict.md").read_text().splitlines()
    assert export.startswith(f"Its model is written. To ask it: `python -m trainables.chat {plan.trials[0].id()}")
    typed_next = finish.suggest_next_command(plan, "python -m platform.sweep own", store)
    assert typed_next.startswith(f"python -m trainables.chat {plan.trials[0].id()} ")
    assert said(replace(plan, trials=plan.trials[1:]), store) == f"verdict: {sentence} Its model: somewhere"


def test_what_cannot_be_shipped_is_not_exported(typed: list[str], tmp_path: Path, written: Any) -> None:
    """The model card of one that is exported by hand says why."""
    reason = "less than 90% of the target model's utility is kept"
    plan, store = swept(typed, tmp_path, 0.5, (0.1, 0.3), (0.3, 0.4))
    line = said(plan, store)
    assert line.startswith(f"verdict: Ship none: {reason}. The nearest is ")
    assert "To write its model all the same: python -m trainables.export " in line
    manifest.write_manifest(read_sweep_state(plan, store), store, "python -m platform.sweep own")
    lead = (report.build_report("own", store) / "tables/verdict.md").read_text()
    assert lead.startswith(f"Ship none: {reason}. The nearest is trial ")
    assert written == []
    facts: dict[str, Any] = dict.fromkeys(("stopped", "why", "chosen_step")) | {"fault": reason}
    assert f"**Not to be shipped as it is: {reason}.**" in model_folder._choice(facts, plan.trials[0])


def test_status_tells_that_none_is_chosen_and_the_end_what_to_type(typed: list[str], tmp_path: Path) -> None:
    """Where settings are explained, or a chat with the model that was written."""
    unknown = {"forget_said_any": 0.1, "utility": None}
    plan, store = swept(typed, tmp_path, 0.5, (0.1, 0.4), (0.3, 0.4), metrics=unknown)
    manifest.write_manifest(read_sweep_state(plan, store), store, "python -m platform.sweep own")
    told = collect_sweep_status(manifest.find_ready_sweeps("own", store)[0], store)["verdicts"]["own"]
    assert told.startswith("No verdict: no utility could be measured")
    several = "python -m platform.sweep own --set seed=0,1"
    assert finish.suggest_next_command(plan, several, store).startswith("docs/own.md says which settings decide most ")


@pytest.mark.parametrize(("still", "little"), [(0.8, True), (0.5, False)])
def test_a_trial_that_leaves_most_is_said_to(
    typed: list[str], tmp_path: Path, written: Any, still: float, little: bool
) -> None:
    told = said(*swept(typed, tmp_path, 0.5, (still, 0.46), (1.0, 0.5)))
    yet = "none yet: most is still there; other settings or a lower selection.share may remove more. The nearest is "
    assert told.startswith(f"verdict: Ship {yet if little else ''}gd-")
    assert told.endswith("Its model: somewhere")


def test_a_target_model_without_utility_does_not_let_a_ruined_one_pass(
    typed: list[str], tmp_path: Path, written: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor one that knows nothing of the rows to forget, which is told before any trial."""
    plan, store = swept(typed, tmp_path, 0.0, (0.0, 0.0), (0.3, 0.2))
    printed = said(plan, store)
    assert printed.startswith(f"verdict: Ship {plan.label(plan.trials[1])}: ")
    assert "; the target model's utility is 0, so the highest utility is chosen. Its model: " in printed
    prepare._warn_of_weak_targets(plan, store)
    assert capsys.readouterr().out.startswith(
        "warning: own: the target model's utility is 0, so the highest utility is chosen; "
    )
    write_evaluation(store, plan.references[0].evaluation, measures(0.05, 0.5))
    prepare._warn_of_weak_targets(plan, store)
    assert "target: nothing was there to remove, the target model says 5% of the rows" in capsys.readouterr().out


def test_a_start_without_a_report_ends_with_status_1(typed: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    plan, store = swept(typed, tmp_path, 0.5, (0.1, 0.46), (0.3, 0.5))
    sweep = manifest.write_manifest(read_sweep_state(plan, store), store, "python -m platform.sweep own")
    mirror = start_mlflow_mirror(sweep, store)
    mirror.close()
    for status in (0, 2):
        monkeypatch.setattr(finish.subprocess, "run", lambda *a, code=status, **b: subprocess.CompletedProcess(a, code))
        assert finish.report_end_of_sweep(plan, store, mirror) == (status > 0)


def test_halves_are_reported_on_the_rows_that_were_not_chosen_on(
    typed: list[str], tmp_path: Path, written: Any
) -> None:
    halves = [measures(0.1, 0.6), measures(0.9, 0.4)]
    chosen = [*typed, "selection.halves=true"]
    plan, store = swept(chosen, tmp_path, 0.5, (0.2, 0.5), (0.2, 0.5), halves=halves, status="collapsed")
    assert "said 0.900, utility 0.400; the target model's utility is not known" in said(plan, store)
    assert "among the 2 evaluated trials" in written[0][1]


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
    chosen = chosen_trials.choose_trials_of_each_study(plan, store)
    assert {(trial.training.lr, trial.seed) for trial in chosen} == {(1e-3, 0), (1e-3, 1)}
    trials = small.plan(store, *settings[:3], "training.lr=1e-4,2e-4,3e-4,5e-4", "seed=0,1,2").trials
    even = {trial.id(): store.result(chosen[0].id()) or {} for trial in trials}  # of ties the first id, as reports
    assert min(even) in map(Trial.id, chosen_trials.choose_trials_of_study(trials, even, None, plan.sweep.selection))
    assert chosen_trials.list_trials_to_attack(plan, store) == [], "no weights"
    for trial in chosen:
        (store.trial(trial.id()) / WEIGHTS).mkdir()
    assert chosen_trials.list_trials_to_attack(plan, store) == chosen
    started = (store.result(chosen[0].id()) or {})["started"]
    for trial, names in zip(chosen, (("nf4", "prefix"), ("nf4",)), strict=True):
        known = {"started": started, "attacks": {name: {"left_out": None} for name in names}, "shares": []}
        write_json(store.attack_results_folder(trial.id()) / ATTACK_RESULTS_FILE, known)
    assert chosen_trials.list_trials_to_attack(plan, store) == chosen[1:], "one attack is missing"
