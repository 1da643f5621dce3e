"""Resolution of a sweep into a plan, or into all that is wrong at once. Nothing is written."""

from typing import Any

from platform.plan import overrides
from platform.plan.costs import check_memory_fits, estimate_memory_by_study
from platform.plan.models import (
    ModelFinder,
    PlannedEvaluation,
    make_path_absolute,
    read_config_or_recipe,
    resolve_benchmark,
)
from platform.plan.plan import Plan
from platform.plan.spaces import ModelsBySplit, StudySpace, list_known_trials, list_study_spaces
from search_spaces.schema.sweep import STUDY_AXIS_PATHS, Range, Sweep
from trainables import benchmarks as kinds
from trainables.benchmarks import evaluation, own
from trainables.benchmarks.own import row_files
from trainables.common.errors import InputError, ProblemCollector
from trainables.common.fingerprints import hash_json
from trainables.common.typed_paths import is_folder
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.config.settings import Benchmark, ModelShape, RetainEvaluationFile
from trainables.config.trial import EARLIER_TRIAL_PREFIX, Trial, hashed_settings, remove_planning_resources
from trainables.data import raw_rows, templates
from trainables.data.hub_folders import HubRequirement, find_downloaded_folder
from trainables.methods import custom, method_constants
from trainables.robustness import attacks
from trainables.storage.file_names import RESULT, WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.training import memory

SWEEP_HASH_FIELDS = ("name", "searched", "benchmark", "objective", "training", "export", "resources", "fictional")
"""Settings that a sweep's hash is of; trials' own ids hold the others."""
SplitReferences = dict[str, list[PlannedEvaluation]]


def make_plan(
    sweep: Sweep,
    store: Storage,
    *,
    strategy: str | None = None,
    only: list[str] | None = None,
    budget: int | None = None,
) -> Plan:
    """Resolve a sweep. Raises InputError with every problem found."""
    strategy = strategy or sweep.strategy
    sweep = _choose_template(_list_requests(_locate_answers(sweep)), store)
    benchmarks, models, found = _resolve_data_and_models(sweep, store)
    warnings = _check_rows_with_models(benchmarks, found)
    used = _models_of(found, models.kind.REFERENCE, store)
    spaces = list_study_spaces(sweep, strategy, benchmarks, used)
    has_choice = any(space.varied_axes or space.fixed["training"]["eval_every"] for space in spaces)
    if strategy == "paper" and not has_choice:
        sweep = sweep.model_copy(update={"selection": sweep.selection.model_copy(update={"halves": False})})
        spaces = list_study_spaces(sweep, strategy, benchmarks, used)
    problems = ProblemCollector()
    problems.collect_from(kinds.choose_search_goals, next(iter(benchmarks.values())), sweep.search.goals)
    problems.collect_from(_check_stress, sweep)
    every = [space.study for space in spaces]
    spaces = problems.collect_from(overrides.filter_study_spaces, spaces, only or []) or spaces
    problems.collect_from(_check_sequence, spaces, strategy)
    studied = (budget or sweep.trials) if strategy == "optuna" else None
    trials = _follow(list_known_trials(spaces, sweep, strategy), store)
    shape, needs = _check_trials(sweep, trials, models, problems)
    splits = {trial.benchmark.split for trial in trials}
    references = tuple(ref for split in sweep.splits if split in splits for ref in found[split])
    recipes = models.list_needed_recipes({ref.model.path for ref in references})
    return Plan(
        sweep=sweep,
        strategy=strategy,
        hash=_hash(sweep, benchmarks, references),
        trials=tuple(trials),
        spaces={space.study: space for space in spaces},
        benchmarks=benchmarks,
        references=references,
        recipes=recipes,
        hub=models.list_hub_requirements(list(benchmarks.values()), references, recipes),
        budget=studied,
        needs=needs,
        shape=shape,
        warnings=(*warnings, *overrides.list_setting_warnings(sweep, spaces, strategy)),
        left_out=tuple(study for study in every if study not in {space.study for space in spaces}),
    )


def _locate_answers(sweep: Sweep) -> Sweep:
    """Return the sweep with the absolute path and the fingerprint of `objective.idk`. Raises InputError."""
    idk = sweep.objective.idk
    if idk is None:
        return sweep
    named = {"idk": make_path_absolute(idk), "idk_fingerprint": raw_rows.fingerprint_idk_answers(idk)}
    return sweep.model_copy(update={"objective": sweep.objective.model_copy(update=named)})


def _choose_template(sweep: Sweep, store: Storage) -> Sweep:
    """Return the sweep of own rows with the template of the target model's tokenizer, where none is named."""
    if sweep.benchmark.name != "own" or sweep.benchmark.template != templates.AUTO_TEMPLATE:
        return sweep
    place = sweep.tokenizer or sweep.target or f"{sweep.models}/{kinds.get_benchmark('own').TARGET}"
    wanted = HubRequirement("tokenizers" if sweep.tokenizer else "models", place)
    found = None if is_folder(place) else find_downloaded_folder(wanted, store)  # fetched by an earlier start
    chosen = {"template": templates.choose_template(str(found or place))}
    return sweep.model_copy(update={"benchmark": sweep.benchmark.model_copy(update=chosen)})


def _list_requests(sweep: Sweep) -> Sweep:
    """Return the sweep with a split for each file of `requests`. Raises InputError."""
    if sweep.requests is None or sweep.benchmark.name != "own":
        return sweep
    if sweep.forget is not None:
        raise InputError("give either forget or requests: each file in the folder requests is what one request forgets")
    splits = tuple(row_files.map_request_splits_to_files(sweep.requests))
    if sweep.splits not in (splits, (own.OWN_SPLIT,)):
        raise InputError("benchmark.split, requests: each file is a split; run the first by --only benchmark.split=")
    return sweep.model_copy(update={"axes": {**sweep.axes, "benchmark.split": splits}})


def _check_sequence(spaces: list[StudySpace], strategy: str) -> None:
    """Raise InputError where a split goes on from another one that is not run, or it is not clear from which trial."""
    seen: set[str] = set()
    for space in spaces:
        benchmark = space.fixed["benchmark"]
        seen.add(benchmark.split)
        before = kinds.get_benchmark(benchmark.name).find_preceding_split(benchmark.split)
        if before and before not in seen:
            raise InputError(f"benchmark.split: {benchmark.split} goes on from {before}; name that before it")
        if before and (strategy == "optuna" or space.varied_axes):
            several = f"not several values of {', '.join(space.varied_axes)}" if space.varied_axes else "no search"
            advice = "add --strategy paper, or --set PATH=VALUE with one value of each"
            raise InputError(f"{benchmark.split} goes on from {before} with the same settings: {several}; {advice}")


def _follow(trials: list[Trial], store: Storage) -> list[Trial]:
    """Return the trials, which are sorted by split, each on the model that its settings left at the split before it."""
    found: list[Trial] = []
    made: dict[tuple[Any, ...], str] = {}
    for trial in trials:
        before = kinds.get_benchmark(trial.benchmark.name).find_preceding_split(trial.benchmark.split)
        settings = trial.method, trial.rectifier.name, trial.seed
        if key := made.get((before, *settings)):
            left = {"path": str(store.trial(key) / WEIGHTS), "fingerprint": f"{EARLIER_TRIAL_PREFIX}{key}"}
            left |= {"revision": None, "tokenizer": None}
            trial = trial.model_copy(update={"target": trial.target.model_copy(update=left)})
        made[trial.benchmark.split, *settings] = trial.id()
        found.append(trial)
    return found


def _resolve_data_and_models(sweep: Sweep, store: Storage) -> tuple[dict[str, Benchmark], ModelFinder, SplitReferences]:
    """Return rows, models and reference evaluations of every split. Raises InputError with every problem of theirs."""
    problems = ProblemCollector()
    problems.collect_from(templates.check_template_name, sweep.benchmark.template)
    benchmarks = {split: problems.collect_from(resolve_benchmark, sweep, split, store) for split in sweep.splits}
    for name in ("target", "baseline", "models"):
        problems.collect_from(ModelFinder(sweep, store, sweep.benchmark).check_model_location, name)
    problems.raise_if_any()
    models = ModelFinder(sweep, store, next(iter(benchmarks.values())))
    found = {split: problems.collect_from(models.plan_references, benchmark) for split, benchmark in benchmarks.items()}
    problems.raise_if_any()
    return benchmarks, models, found


def _check_rows_with_models(benchmarks: dict[str, Benchmark], references: SplitReferences) -> tuple[str, ...]:
    """Return what is odd in rows, tokenizers and templates. Raises InputError with all that is wrong in them."""
    problems, warnings = ProblemCollector(), []
    asked = {(benchmarks[split], one.model): one.role for split, found in references.items() for one in found}
    for (benchmark, model), role in asked.items():
        wrong, odd = evaluation.find_model_problems(benchmark, model, "target" if role == "original" else role)
        problems.found += wrong
        warnings += odd
    problems.found = list(dict.fromkeys(problems.found))
    problems.raise_if_any()
    rows = (kinds.get_benchmark(one.name).describe_odd_rows(one) for one in benchmarks.values())
    return tuple(dict.fromkeys(filter(None, (*rows, *warnings))))


def _check_trials(
    sweep: Sweep, trials: list[Trial], models: ModelFinder, problems: ProblemCollector
) -> tuple[ModelShape | None, dict[str, memory.MemoryFit]]:
    """Return the sizes of the trials' model, and what memory they need. Raises InputError with every problem."""
    for trial in (trial for trial in trials if METHODS[trial.method].steers):
        depth = read_config_or_recipe(trial.target, models.recipes).get("num_hidden_layers")
        settings = method_constants.resolve_constants(trial.method, trial.objective, trial.benchmark.split)
        if isinstance(depth, int):  # which is not known of a model that is not fetched
            problems.collect_from(method_constants.check_rmu_layer, settings.layer, depth)
    for benchmark in dict.fromkeys(trial.benchmark for trial in trials if "idk" in METHODS[trial.method].reads):
        problems.collect_from(kinds.get_benchmark(benchmark.name).check_rows_are_questions, benchmark)
    for name in sorted({trial.method for trial in trials if METHODS[trial.method].custom}):
        problems.collect_from(custom.load_custom_method, name, "make")
    for name in sorted({trial.rectifier.name for trial in trials if RECTIFIERS[trial.rectifier.name].custom}):
        problems.collect_from(custom.load_custom_method, name, "Rectifier")
    sizes = read_config_or_recipe(trials[0].target, models.recipes) if trials else {}
    shape = memory.parse_model_shape(sizes) if sizes else sweep.backbone.shape if sweep.backbone else None
    needs = estimate_memory_by_study(trials, shape)
    problems.collect_from(check_memory_fits, needs)
    for benchmark in dict.fromkeys(trial.benchmark for trial in trials if METHODS[trial.method].batched):
        size = kinds.get_benchmark(benchmark.name).estimate_training_size(benchmark, sweep.training.max_length)
        if size.exact:
            asked = size.points, sweep.task_vector.batches, benchmark.split
            problems.collect_from(method_constants.check_enough_forget_rows, *asked)
    problems.raise_if_any()
    return shape, needs


def _check_stress(sweep: Sweep) -> None:
    """Raise InputError on attacks that cannot be made."""
    if stress := sweep.stress.attacks:
        attacks.check_benchmark_can_be_attacked(sweep.benchmark, "stress.attacks")
        names = attacks.resolve_attack_names(stress, "stress.attacks")
        attacks.check_relearning_rate(names, sweep.stress.lr, "stress.lr")
    elif sweep.stress.lr is not None:
        raise InputError("stress.lr: no attack is asked for; add --set stress.attacks=all")


def _models_of(references: SplitReferences, role: str, store: Storage) -> ModelsBySplit:
    """Return the target model of each split, and the evaluation of `role`, which its trials are measured against."""
    found = {}
    for split, each in references.items():
        by_role = {reference.role: reference for reference in each}
        key = by_role[role].evaluation if role in by_role else None
        retain = RetainEvaluationFile(path=str(store.evaluation(key) / RESULT), fingerprint=key) if key else None
        found[split] = (by_role["original"].model, retain)
    return found


def _hash(sweep: Sweep, benchmarks: dict[str, Benchmark], references: tuple[PlannedEvaluation, ...]) -> str:
    """Return eight hex digits of the sweep's fixed part: an added value of an axis changes none of it."""
    changed: dict[str, Any] = {}
    for path, axis in sweep.axes.items():  # one value on each axis, its own if it is there
        section, _, name = path.rpartition(".")
        own: Any = sweep if not section else changed.get(section, getattr(sweep, section, None))
        if path in STUDY_AXIS_PATHS or not hasattr(own, name) or getattr(own, name) in axis:
            continue
        value = axis.low if isinstance(axis, Range) else axis[0]
        changed |= {section: own.model_copy(update={name: value})} if section else {name: value}
    settings = hashed_settings(sweep.model_copy(update=changed))
    fixed: dict[str, Any] = {name: settings[name] for name in settings if name in SWEEP_HASH_FIELDS}
    for place in ("data", "sources"):
        fixed.get("benchmark", {}).pop(place, None)
    remove_planning_resources(fixed)
    benchmark = next(iter(benchmarks.values()))
    kind = kinds.get_benchmark(benchmark.name)
    fixed["data"] = str(benchmark.fingerprint) if benchmark.is_fictional else kind.fingerprint_shared_rows(benchmark)
    fixed["models"] = sorted({str(ref.model.fingerprint) for ref in references if ref.role == "original"})
    return hash_json(fixed)[:8]
