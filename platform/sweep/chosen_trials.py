"""The trials that the rule chooses are judged, exported and attacked at the end of a sweep."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from platform.plan.plan import Plan
from platform.state import trial_outcomes
from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.benchmarks.selection import ShippingVerdict, choose_and_judge_trial
from trainables.common.cli import print_line
from trainables.common.errors import extract_last_error_line
from trainables.config.settings import Selection
from trainables.config.trial import EARLIER_TRIAL_PREFIX, Trial
from trainables.robustness import attacks
from trainables.storage.file_names import EVALUATED_STATUSES
from trainables.storage.folder_storage import Storage, move_to_dated_folder
from trainables.storage.opening import format_storage_option


def print_verdicts_and_export_chosen(plan: Plan, store: Storage) -> None:
    """Say of each split what to ship; export the chosen trial or say why not."""
    plan = trial_outcomes.add_recorded_trials_to_plan(plan, store, every=True)
    name, rule = plan.sweep.benchmark.name, plan.sweep.selection
    for trial, found, results in judge_splits(plan, store):
        said = found.describe(plan.label(trial) if trial else "")
        if trial and found.reason:
            command = f"python -m trainables.export {found.key} --output DIR{format_storage_option(store)}"
            said += f" To write its model all the same: {command}"
        elif trial:
            measured = selection.list_candidates(results, name, rule)
            why = f"It is the choice among the {len(measured)} evaluated trials of sweep {plan.name}: "
            said += f" {_export(trial, f'{why}{selection.describe_rule(rule)}.', plan, store)}"
        print_line(f"verdict: {said}")


def judge_splits(plan: Plan, store: Storage) -> Iterator[tuple[Trial | None, ShippingVerdict, dict[str, Any]]]:
    """Yield of each split, of those in a row of the last one, the chosen trial, the verdict, and results by id.

    `plan`: with the trials of all starts.
    """
    name, splits = plan.sweep.benchmark.name, dict.fromkeys(trial.benchmark.split for trial in plan.trials)
    before = set(map(benchmarks.get_benchmark(name).find_preceding_split, splits))
    targets = trial_outcomes.read_target_evaluations(plan, store)
    for split in (one for one in splits if one not in before):
        trials = {trial.id(): trial for trial in plan.trials if trial.benchmark.split == split}
        results = {key: store.result(key) or {} for key in trials}
        found = choose_and_judge_trial(name, plan.sweep.selection, results, targets.get(split, {}))
        yield trials.get(found.key or ""), found, results


def _export(trial: Trial, why: str, plan: Plan, store: Storage) -> str:
    """Export a trial unless that is done; return where the folder is, or why it cannot be written."""
    import ray.exceptions

    from trainables.workers.ray_processes import export_trial_model

    folder = store.root / "exports" / trial.id()
    if store.find_export(trial.id()) is None:
        if folder.exists():  # of an earlier run of the same trial
            move_to_dated_folder([folder], store)
        print_line(f"writing the chosen model to {folder}, and measuring it again")
        make: Any = ray.remote(export_trial_model).options(num_cpus=1, num_gpus=min(1, plan.sweep.resources.gpus))
        try:
            ray.get(make.remote(trial.id(), store.location, str(folder), why, plan.sweep.selection))
        except ray.exceptions.RayTaskError as error:
            return f"Not exported: {error.cause}"
    return f"Its model: {store.uri(folder) if store.is_remote else folder}"


def attack_chosen_trials(plan: Plan, store: Storage) -> None:
    """Attack each chosen trial whose weights are kept, unless that is done; print what came back."""
    import ray.exceptions

    from trainables.workers.ray_processes import attack_trial

    stress, resources = plan.sweep.stress, plan.sweep.resources
    chosen, left = choose_trials_of_each_study(plan, store), list_trials_to_attack(plan, store)
    without = sum(not store.has_weights(trial.id()) for trial in chosen)
    if without:
        print_line(f"stress: the weights of {without} of {len(chosen)} chosen trials were not kept; --keep all does")
    make: Any = ray.remote(attack_trial).options(num_cpus=resources.cpus, num_gpus=min(1, resources.gpus))
    words = (attacks.resolve_attack_names(stress.attacks, "stress.attacks"), stress.lr, store.location)
    first = list({trial.benchmark.split: trial for trial in reversed(left)}.values())
    for group in (first, [trial for trial in left if trial not in first]):  # the first attack the reference models, too
        made = {make.remote(trial.id(), *words): trial for trial in group}
        while made:
            (task,), _ = ray.wait(list(made))
            shown = f"stress: {plan.label(trial := made.pop(task))}"
            try:
                print_line(f"{shown}: {ray.get(task)}")
            except ray.exceptions.RayError as error:
                print_line(f"{shown} ({trial.id()}): not attacked: {extract_last_error_line(error)}")


def list_trials_to_attack(plan: Plan, store: Storage) -> list[Trial]:
    """Return the chosen trials whose weights are kept and on which not all of `stress.attacks` were made."""
    stress = plan.sweep.stress
    if not stress.attacks:
        return []
    names = set(attacks.resolve_attack_names(stress.attacks, "stress.attacks"))
    found = []
    for trial in choose_trials_of_each_study(plan, store):
        key = trial.id()
        known, _ = attacks.read_kept_recoveries(key, (store.result(key) or {}).get("started"), store)
        made = {name for name, settings in known.items() if settings.get("lr") in (None, stress.lr)}
        if names - made and store.has_weights(key):
            found.append(trial)
    return found


def choose_trials_of_each_study(plan: Plan, store: Storage) -> list[Trial]:
    plan = trial_outcomes.add_recorded_trials_to_plan(plan, store, every=True)
    utilities, chosen = trial_outcomes.read_target_utilities(plan, store), list[Trial]()
    for study, trials in plan.group_trials_by_study().items():
        if study not in plan.spaces:  # --only leaves it out
            continue
        results = {key: store.result(key) or {} for key in (trial.id() for trial in trials)}
        utility = utilities.get(trials[0].benchmark.split)
        chosen += choose_trials_of_study(trials, results, utility, plan.sweep.selection)
    return chosen


def choose_trials_of_study(
    trials: Sequence[Trial], results: selection.ResultsByKey, utility: float | None, rule: Selection
) -> list[Trial]:
    """Return the evaluated trials of the setting that the rule chooses by means over seeds, as reports show them.

    `utility`: the target model's. With `selection.seeds` those of other seeds, where any is evaluated.
    """
    settings = defaultdict[str, list[Trial]](list)
    for trial in trials:
        if results[trial.id()].get("status") in EVALUATED_STATUSES:
            earlier = {"fingerprint": EARLIER_TRIAL_PREFIX} if trial.earlier_trial_id else {}  # each seed has its own
            same = {"seed": 0, "target": trial.target.model_copy(update=earlier)}
            settings[trial.model_copy(update=same).id()].append(trial)
    settings = {min(one.id() for one in group): group for group in settings.values()}  # of ties reports take the first
    known = {one.key: one for one in selection.list_candidates(results, trials[0].benchmark.name, rule)}
    measured = {key: [known[one.id()] for one in group if one.id() in known] for key, group in settings.items()}
    averages = selection.average_over_seeds({key: found for key, found in measured.items() if found})
    best = selection.pick_best_candidate(averages, utility, rule)
    chosen = settings[best.key] if best else []
    return [one for one in chosen if one.seed not in rule.seeds] or chosen
