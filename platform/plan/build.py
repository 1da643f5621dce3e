"""What a sweep would run: its trials, what they need, and all that is wrong, at once. Nothing is touched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from platform.plan import budget as budgets
from platform.plan import data, overrides, requirements
from platform.plan import trials as plan_trials
from platform.plan.models import ModelRecipes, Reference
from platform.plan.value import Plan
from platform.state import history as histories
from search_spaces.schema.sweep import FILES, Sweep
from trainables import benchmarks as kinds
from trainables.common.errors import InputError, closest
from trainables.config import trial as config
from trainables.config.ids import digest, forget_planning, identity
from trainables.config.settings import Benchmark, Model, RetainEvaluation
from trainables.config.trial import Recipe, Trial
from trainables.data import prompts
from trainables.methods import custom
from trainables.storage.base import FAILURES, LOST, RESULT, Storage
from trainables.storage.results import read_result
from trainables.training.task_vectors import spec


@dataclass
class Problems:
    """Collects what is wrong, so that a person hears of everything at once."""

    found: list[str] = field(default_factory=list)

    def check(self, action: Any, *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except InputError as error:
            if str(error) not in self.found:
                self.found.append(str(error))
            return None

    def stop(self) -> None:
        if self.found:
            raise InputError("; ".join(self.found))


def make(
    sweep: Sweep,
    store: Storage,
    *,
    strategy: str = "grid",
    only: list[str] | None = None,
    budget: int | None = None,
    retry: tuple[str, ...] = (),
) -> Plan:
    """Resolve a sweep; trials whose outcome is one of `retry` run again. Raises InputError with every problem found."""
    if strategy not in plan_trials.STRATEGIES:
        raise InputError(f"--strategy: unknown strategy '{strategy}'; {closest(strategy, plan_trials.STRATEGIES)}")
    benchmarks, house, found = _groundwork(sweep, store)
    every = plan_trials.enumerate_trials(sweep, strategy, benchmarks, lambda split: _models(found[split], store))
    trials, costs = _chosen(sweep, every, only or [], house.recipes)
    splits = {trial.benchmark.split for trial in trials}
    references = tuple(ref for split in sweep.splits if split in splits for ref in found[split])
    recipes = house.ordered({ref.model.path for ref in references})
    plan = Plan(
        sweep=sweep,
        strategy=strategy,
        hash=_hash(sweep, benchmarks, references),
        trials=tuple(trials),
        benchmarks=benchmarks,
        references=references,
        recipes=recipes,
        hub=requirements.wanted(sweep, benchmarks, references, recipes),
        retry=retry,
        budget=budget,
        costs=costs,
    )
    plan = again(plan, store)
    return replace(plan, needs=requirements.of(sweep, plan.hub, store))


def _groundwork(sweep: Sweep, store: Storage) -> tuple[dict[str, Benchmark], ModelRecipes, dict[str, list[Reference]]]:
    """Rows, models and reference evaluations of every split. Raises InputError with every problem of theirs."""
    problems = Problems()
    problems.check(prompts.check, sweep.benchmark.template)
    problems.check(_disk, store)
    benchmarks = {split: problems.check(data.benchmark, sweep, split, store) for split in sweep.splits}
    if None in benchmarks.values():
        problems.check(ModelRecipes(sweep, store, sweep.benchmark).check_folders)
    problems.stop()
    house = ModelRecipes(sweep, store, next(iter(benchmarks.values())))
    found = {split: problems.check(_references, house, split, benchmarks[split]) for split in sweep.splits}
    problems.stop()
    for model in {ref.model for refs in found.values() for ref in refs}:
        problems.check(prompts.check_folder, sweep.benchmark.template, model.tokenizer or model.path)
    problems.stop()
    return benchmarks, house, found


def _chosen(
    sweep: Sweep, every: list[Trial], only: list[str], recipes: dict[str, Recipe]
) -> tuple[list[Trial], budgets.Budget]:
    """The trials that `only` picks, and what they cost. Raises InputError with every problem of theirs."""
    problems = Problems()
    trials = problems.check(overrides.select, every, only) or every
    for trial in trials:
        problems.check(plan_trials.check_layer, trial, recipes)
    for method in sorted({trial.method for trial in trials} & set(custom.NAMES)):
        problems.check(custom.find, method)
    costs = budgets.of(sweep, trials, recipes)
    problems.check(costs.check)
    for benchmark in dict.fromkeys(trial.benchmark for trial in trials if trial.method == "tru"):
        problems.check(_batches, sweep, benchmark)
    problems.stop()
    return trials, costs


def again(plan: Plan, store: Storage) -> Plan:
    """The plan with what is done by now: another driver may have ended since it was made."""
    damaged, outcomes, notes = [], {}, []
    store.sync_trials(trial.id() for trial in plan.trials)
    for key in (trial.id() for trial in plan.trials):
        result, found = read_result(store.trial(key))
        damaged += found
        if result is not None:
            outcomes[key] = result["status"]
            notes.append(histories.note(result))
    retried = tuple(key for key, status in outcomes.items() if status in (*plan.retry, LOST))
    failed = tuple((key, status) for key, status in outcomes.items() if status in FAILURES and key not in retried)
    done = frozenset(outcomes) - set(retried)
    found = replace(plan, done=done, retried=retried, damaged=tuple(damaged), failed=failed)
    return replace(found, history=replace(histories.of(notes), shared=histories.shared(found, store)))


def afresh(plan: Plan, store: Storage) -> Plan:
    """The plan as `--new` runs it, once the results of all its trials are set aside."""
    fresh = replace(plan, done=frozenset(), retried=(), damaged=(), failed=())
    return replace(fresh, history=histories.History(shared=histories.shared(fresh, store)))


def current(plan: Plan, store: Storage) -> Plan:
    """The plan, read again where another driver may have ended or mended trials since it was made."""
    if plan.retried or plan.damaged:
        return again(plan, store)
    store.sync_trials(trial.id() for trial in plan.trials)
    there = {key for trial in plan.trials if store.has(key := trial.id())}
    return plan if there == plan.done else again(plan, store)


def _batches(sweep: Sweep, benchmark: Benchmark) -> None:
    """Refuse more batches than forget points where the points can be counted."""
    points = kinds.find(benchmark.name).forget_points(benchmark)
    if points is not None:
        spec.check_sizes(points, sweep.task_vector.batches, benchmark.split)


def _references(house: ModelRecipes, split: str, benchmark: Benchmark) -> list[Reference]:
    kind, precision = kinds.find(benchmark.name), house.sweep.resources.precision
    role = kind.retain_role(split)
    retain = house.model(role) if role else None
    target = house.model(kind.TARGET)
    retain_id = config.evaluation_id(retain, benchmark, None, precision) if retain else None
    found = [Reference("original", split, target, config.evaluation_id(target, benchmark, retain_id, precision))]
    return [*found, Reference("retain", split, retain, retain_id)] if retain and retain_id else found


def _models(references: list[Reference], store: Storage) -> tuple[Model, RetainEvaluation | None]:
    target, *others = references
    if not others:
        return target.model, None
    (retain,) = others
    path = str(store.evaluation(retain.evaluation) / RESULT)
    return target.model, RetainEvaluation(path=path, fingerprint=retain.evaluation)


def _hash(sweep: Sweep, benchmarks: dict[str, Benchmark], references: tuple[Reference, ...]) -> str:
    """Eight hex digits of the sweep's fixed part: everything but the axes, so that an added axis value keeps it."""
    axes = {*overrides.AXES.values(), "varied", "choices", "title", "tables"}
    axes |= {
        "models",
        "target",
        "tokenizer",
        "attention",
        "making",
        "backbone",
        "task_vector",
        "calibration",
        "selection",
        "trial_seconds",
        *FILES,
    }
    fixed: dict[str, Any] = {k: v for k, v in identity(sweep).items() if k not in axes}
    for place in ("data", "sources"):
        fixed.get("benchmark", {}).pop(place, None)
    forget_planning(fixed)
    benchmark = next(iter(benchmarks.values()))
    fixed["data"] = str(benchmark.fingerprint)
    if not benchmark.is_fictional:
        fixed["data"] = kinds.find(benchmark.name).shared_fingerprint(benchmark)
    fixed["models"] = sorted({str(ref.model.fingerprint) for ref in references if ref.role == "original"})
    return digest(fixed)[:8]


def _disk(store: Storage) -> None:
    if store.free() < 64 * 2**20:
        raise InputError(f"--storage: {store.free() / 2**20:.0f} MB free at '{store.root}', at least 64 MB are needed")
