"""A trial's kept weights as a folder that others can load: safetensors, tokenizer, a card, and facts without texts."""

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from pydantic import ValidationError

from trainables import benchmarks
from trainables.benchmarks import evaluation, selection
from trainables.benchmarks.local_paths import localize_paths
from trainables.benchmarks.selection import choose_and_judge_trial
from trainables.common import cli, fingerprints, provenance, typed_paths
from trainables.common.errors import InputError
from trainables.common.fingerprints import hash_json
from trainables.common.wording import escape_markdown
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.config.settings import Model, Selection
from trainables.config.trial import Trial, hashed_settings
from trainables.methods.method_constants import resolve_constants
from trainables.storage import atomic_files
from trainables.storage.file_names import CONFIG, EVALUATED_STATUSES, EXPORT_FACTS_FILE, WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.training import model_files
from trainables.trial import setup, step_selection

CARD_FILE = "README.md"
SAME_WEIGHTS_TOLERANCE, ROUNDED_WEIGHTS_TOLERANCE = 1e-3, 0.05
"""By how much metrics may differ from the trial's: of the same weights, and of rounded ones."""
LOCATION_FIELDS = ("path", "data", "sources", "tokenizer")
"""What a configuration without fingerprints names by place, which is private."""


def export_trial(
    trial_id: str,
    store: Storage,
    output: Path,
    why: str | None = None,
    rule: Selection | None = None,
    shares: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Write the model folder of a trial, which appears when its weights have been evaluated again; return its facts.

    `why`, `rule`: how a sweep chose the trial. `shares`: what attacks brought back (robustness.attacks).
    """
    trial, result = load_evaluated_trial(trial_id, store)
    weights = fetch_kept_weights(trial_id, store)
    if output.exists():
        raise InputError(f"--output: '{output}' exists; give a new folder")
    if links := [path.name for path in weights.rglob("*") if path.is_symlink()]:
        raise InputError(f"ID: '{weights}' has links ({links[0]}), and would take files from elsewhere along")
    atomic_files.check_file_writable(output, "--output")
    evaluation.check_data_unchanged(trial.benchmark)
    if rule is None:  # by which the step was chosen; the default, which reports all rows, if none was
        rule = trial.selection if result["chosen_step"] is not None else Selection()
    with atomic_files.write_folder(output) as staging:
        verified = _write_weights(trial, result, store, weights, staging)
        halves = verified.pop("halves")
        if verified["rounded_to"]:  # the card and its verdict are on what is written
            result = result | {"metrics": result["metrics"] | verified["verified_metrics"], "halves": halves}
        facts = _collect_facts(trial, result, store, rule) | verified | {"why": why, "attacks": list(shares)}
        atomic_files.write_json(staging / EXPORT_FACTS_FILE, facts)
        atomic_files.write_redacted_text(staging / CARD_FILE, render_model_card(facts, trial))
    return facts


def _write_weights(
    trial: Trial, result: Mapping[str, Any], store: Storage, weights: Path, folder: Path
) -> dict[str, Any]:
    """Write a trial's weights, rounded as the target's files are if its metrics stay; return what the check found."""
    target = [trial, *step_selection.list_predecessor_trials(trial, store)][-1].target
    has, rounded = map(model_files.read_stated_precision, (weights, typed_paths.expand_home(target.path)))
    if has == "fp32" and rounded != has:
        made = Model(path=str(weights), attention=trial.target.attention)
        network, tokenizer = model_files.load_model_and_tokenizer(made, rounded, "ID")
        model_files.save_model(network, tokenizer, folder, {})
        (folder / fingerprints.RECIPE_FILE).unlink()
        found = verify_export_metrics(trial, result, folder, ROUNDED_WEIGHTS_TOLERANCE) | {"rounded_to": rounded}
        if not found["differences"]:
            return found
        shutil.rmtree(folder)
    shutil.copytree(weights, folder, ignore=shutil.ignore_patterns(fingerprints.RECIPE_FILE, ".*"))
    return verify_export_metrics(trial, result, folder) | {"rounded_to": None}


def fetch_kept_weights(trial_id: str, store: Storage) -> Path:
    """Return the folder of a trial's weights. Raises InputError if they were not kept, or if there is no such trial."""
    folder = store.trial(trial_id)
    if not store.has_weights(trial_id):
        load_evaluated_result(trial_id, store)
        again = f"python -m trainables.run {folder / CONFIG} --storage AGAIN, then take it from --storage AGAIN"
        raise InputError(f"ID: the weights of trial {trial_id} were not kept; run it again with {again}")
    store.fetch(folder / WEIGHTS)
    return folder / WEIGHTS


def verify_export_metrics(
    trial: Trial, result: Mapping[str, Any], folder: Path, tolerance: float = SAME_WEIGHTS_TOLERANCE
) -> dict[str, Any]:
    """Evaluate a model folder as the trial did; return what it gave, and the differences from the trial's metrics.

    Raises InputError if the same weights have any on a device like the trial's; on another one rounding makes some.
    """
    import torch

    from trainables.training.runtime import choose_process_token_budget, prepare_process, read_device_name

    gpus = min(1.0, trial.resources.gpus) if torch.cuda.is_available() else 0.0
    resources, run_on = trial.resources.model_copy(update={"ranks": 1, "gpus": gpus}), result["topology"]
    device, verified_on = prepare_process(resources, trial.seed), read_device_name(gpus)
    precision = "fp32" if trial.task_vector else trial.resources.precision
    written = Model(path=str(folder), attention=trial.target.attention)
    network, tokenizer = model_files.load_model_and_tokenizer(written, precision, "--output")
    known = run_on.get("evaluation_tokens") if verified_on == run_on["device"] else None  # bf16 rounds by it
    reference = setup.load_reference_evaluation(trial)
    budget = known or choose_process_token_budget(resources, network.to(device))
    metrics, rows = evaluation.evaluate(network.to(device), tokenizer, trial.benchmark, reference, token_budget=budget)
    halves = benchmarks.compute_metrics_of_each_half(trial.benchmark, rows, reference)
    wrong = []
    for name in (name for name in metrics if name in result["metrics"]):
        before, now = result["metrics"][name], metrics[name]
        unlike = before is None or now is None or not math.isclose(before, now, rel_tol=tolerance, abs_tol=tolerance)
        if before != now and unlike:
            wrong.append(f"{name} {before} is {now}")
    if wrong and tolerance == SAME_WEIGHTS_TOLERANCE and verified_on == run_on["device"]:
        raise InputError(f"--output: the written weights do not give the trial's metrics again: {'; '.join(wrong)}")
    return {"verified_metrics": metrics, "halves": halves, "verified_on": verified_on, "differences": wrong}


def load_evaluated_trial(trial_id: str, store: Storage) -> tuple[Trial, dict[str, Any]]:
    """Return a trial with this machine's paths, and its result. Raises InputError if it is none of this checkout's."""
    result = load_evaluated_result(trial_id, store)
    try:
        return localize_paths(Trial.model_validate(result["config"]), store), result
    except ValidationError as error:  # such as an objective's file
        known = f"the configuration of trial {result['id']} is none of this checkout's"
        raise InputError(f"ID: {known}: {cli.describe_invalid_settings(error)}") from error


def load_evaluated_result(trial_id: str, store: Storage) -> dict[str, Any]:
    """Return the result of a trial that was evaluated. Raises InputError if there is none."""
    store.download_sweeps_and_results([trial_id])
    result = store.result(trial_id)
    if result is None:
        raise InputError(f"ID: no result of a trial '{trial_id}' in {store.location}; a report lists the ids")
    if result["status"] not in EVALUATED_STATUSES:
        raise InputError(f"ID: trial {trial_id} ended as {result['status']}: it has no model")
    return result


def _collect_facts(trial: Trial, result: dict[str, Any], store: Storage, rule: Selection) -> dict[str, Any]:
    chosen = benchmarks.get_benchmark(trial.benchmark.name)
    forget, retain = chosen.training_rows(trial.benchmark)
    target = step_selection.load_target_evaluation(trial, store)
    earlier = step_selection.list_predecessor_trials(trial, store)
    base = [trial, *earlier][-1].target
    verdict = choose_and_judge_trial(trial.benchmark.name, rule, {trial.id(): result}, target or {})
    return {
        "trial": trial.id(),
        "label": trial.label(),
        "base_model": next(iter(_list_hub_ids(base.fingerprint)), None),
        "target_fingerprint": base.fingerprint,
        "configuration": _without_places(hashed_settings(trial)),
        "forget": _describe_rows(forget),
        "earlier": [
            {"trial": one.id(), **_describe_rows(chosen.training_rows(one.benchmark)[0])} for one in reversed(earlier)
        ],
        "retain": _describe_rows(retain),
        "metrics": dict(selection.pick_half_metrics(result, rule, reported=True)),
        "target_metrics": dict(selection.pick_half_metrics(target, rule, reported=True)) if target else None,
        "fault": (verdict.reason or verdict.doubt) if verdict.key else None,
        "outcome": verdict.outcome,
        "held_out": rule.halves,
        "steps": result["training"]["steps"],
        "stopped": result["error"]["message"] if result["error"] else None,
        "chosen_step": result["chosen_step"],
        "made_with": {name: result[name] for name in ("versions", "commit", "dirty", "started")}
        | {"device": result["topology"]["device"]},
        "exported_with": {**provenance.collect_provenance(), "at": provenance.utc_now()},
    }


def _without_places(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {key: _without_places(item) for key, item in node.items() if key not in LOCATION_FIELDS}


def _describe_rows(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many rows there are, and a SHA-256 of them that does not depend on the file's format."""
    return {"rows": len(rows), "sha256": hash_json(rows)}


def render_model_card(facts: dict[str, Any], trial: Trial) -> str:
    """Return README.md of a model folder, from the facts that `model_folder` collects; it names no places."""
    chosen = benchmarks.get_benchmark(trial.benchmark.name)
    rectifier, facts = trial.rectifier.name, facts | {"stopped": escape_markdown(facts["stopped"] or "")}
    datasets = _list_hub_ids(trial.benchmark.fingerprint)
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        base_model=facts["base_model"],
        base_model_relation="finetune" if facts["base_model"] else None,
        tags=["unlearning", trial.method.replace("_", "-"), *([] if rectifier == "none" else [rectifier])],
        datasets=datasets or None,
        model_name=trial.label(),
    )
    constants = vars(resolve_constants(trial.method, trial.objective, trial.benchmark.split))
    objective = [(name, constants.get(name)) for name in METHODS[trial.method].reads]  # no `idk`, a place
    parts: dict[str, Any] = {"objective": objective, "training": trial.training, "rectifier": trial.rectifier}
    if trial.task_vector:
        parts = {"task_vector": trial.task_vector}
    settings = {f"{part}.{name}": value for part, section in parts.items() for name, value in section}
    before, after = facts["target_metrics"] or {}, facts["metrics"]
    goals = {goal.metric: goal for goal in chosen.GOALS}
    measured = []
    for name in [*goals, *sorted(set(facts["verified_metrics"]) - set(goals))]:
        if before.get(name) is None and after.get(name) is None:
            continue
        title = f"**{goals[name].title}** ({goals[name].best} is best)" if name in goals else f"`{name}`"
        measured.append((title, _format(before.get(name)), _format(after.get(name))))
    values = facts | {
        "plain": escape_markdown,
        "method": METHODS[trial.method].label + ("" if rectifier == "none" else f" with {RECTIFIERS[rectifier].label}"),
        "seed": trial.seed,
        "benchmark": trial.benchmark,
        "data": datasets,
        "template": trial.benchmark.template if chosen.ASKS_BY_TEMPLATE else None,
        "settings": settings | {"optimizer steps": facts["steps"], "step chosen": facts["chosen_step"]},
        "choice": _choice(facts, trial),
        "measured": measured,
    }
    template = str(Path(__file__).with_name("model_card.md.j2"))
    return str(ModelCard.from_template(data, template_path=template, **values)) + "\n"


def _list_hub_ids(fingerprint: str | None) -> list[str]:
    mark = fingerprint or ""
    parts = mark.removeprefix("hub:").split("+") if mark.startswith("hub:") else []
    return list(dict.fromkeys(part.partition("@")[0] for part in parts))


def _choice(facts: dict[str, Any], trial: Trial) -> str:
    sentences = [f"Its training was stopped before its last step: {facts['stopped']}."] if facts["stopped"] else []
    sentences += [facts["why"]] if facts["why"] else []
    sentences += [f"**Not to be shipped as it is: {facts['fault']}.**"] if facts["fault"] else []
    if facts["chosen_step"] is not None:
        rule = "by the same rule" if facts["why"] else f"by the rule: {selection.describe_rule(trial.selection)}"
        sentences.append(f"Its step was chosen among those evaluated {rule}.")
    if facts["why"] or facts["chosen_step"] is not None:
        *removal, utility = benchmarks.get_benchmark(trial.benchmark.name).GOALS
        sentences.append(f"Removal is {' and '.join(goal.title for goal in removal)}, utility is {utility.title}.")
    return " ".join(sentences)


def _format(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
