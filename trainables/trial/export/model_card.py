"""The model card of an exported model: what was forgotten, how, and what it cost. Counts and hashes, never text."""

from __future__ import annotations

from typing import Any

from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.config.methods import METHODS, RECTIFIERS
from trainables.config.trial import Trial

TEMPLATED = ("tofu", "own")
"""The benchmarks that ask in a configuration's template: MUSE goes on with plain text, lm-eval has its own prompts."""
METHODS_PAPER = "Gradient Rectified Unlearning (ICML 2025)"


def write(facts: dict[str, Any]) -> str:
    """README.md of a model folder, from the facts that `trainables.export` collects."""
    trial = Trial.model_validate(
        {"target": {"path": facts["base_model"] or "the target model"}} | _with_places(facts["configuration"])
    )
    parts = [part(facts, trial) for part in (_front, _title, _forgotten, _how, _cost)]
    return "\n\n".join([*parts, _limits()])


def _with_places(configuration: dict[str, Any]) -> dict[str, Any]:
    """A configuration that names no places, made whole so that defaults are filled in."""
    filled = dict(configuration)
    filled["target"] = {"path": "the target model"} | configuration["target"]
    if "retain_evaluation" in configuration:
        filled["retain_evaluation"] = {"path": "the retain model"} | configuration["retain_evaluation"]
    return filled


def _method(trial: Trial) -> str:
    rectifier = trial.rectifier.name
    return METHODS[trial.method].label + ("" if rectifier == "none" else f" with {RECTIFIERS[rectifier].label}")


def _front(facts: dict[str, Any], trial: Trial) -> str:
    lines = ["---", "library_name: transformers", "pipeline_tag: text-generation"]
    if facts["base_model"]:
        lines += [f"base_model: {facts['base_model']}", "base_model_relation: finetune"]
    tags = ["unlearning", trial.method.replace("_", "-")] + (
        [] if trial.rectifier.name == "none" else [trial.rectifier.name]
    )
    return "\n".join([*lines, "tags:", *(f"- {tag}" for tag in tags), "---"])


def _title(facts: dict[str, Any], trial: Trial) -> str:
    of = facts["base_model"] or "a model of its owner's"
    mark = f" (fingerprint `{facts['target_fingerprint']}`)" if facts["target_fingerprint"] else ""
    return (
        f"# {of.rsplit('/', 1)[-1] if facts['base_model'] else 'Model'} after unlearning\n\n"
        f"This is {of}{mark} after unlearning {facts['forget']['rows']} rows "
        f"by {_method(trial)}. It was not trained again without them: its weights were changed. How much of the rows "
        "it still gives away is what the measurements below say. The licence is the base model's."
    )


def _forgotten(facts: dict[str, Any], trial: Trial) -> str:
    forget, retain, benchmark = facts["forget"], facts["retain"], trial.benchmark
    return (
        "## What was forgotten\n\n"
        "| | rows | SHA-256 of the rows |\n|---|---:|---|\n"
        f"| forget set | {forget['rows']} | `{forget['sha256']}` |\n"
        f"| retain set | {retain['rows']} | `{retain['sha256']}` |\n\n"
        f"Benchmark `{benchmark.name}`, split `{benchmark.split}`. The hash is that of the rows as JSON with sorted "
        "keys and no spaces, so that whoever has the rows can check that they are these."
    )


def _how(facts: dict[str, Any], trial: Trial) -> str:
    training, rectifier, vector = trial.training, trial.rectifier, trial.task_vector
    if vector is not None:
        settings = {
            "strength": vector.stg or vector.strength,
            "iterations of a vector": vector.steps,
            "learning rate": f"{vector.lr:g} ({vector.optimizer})",
            "batches": vector.batches,
        }
    else:
        settings = {
            "optimizer steps": facts["steps"],
            "learning rate": f"{training.lr:g} ({training.optimizer}, {training.schedule})",
            "batch size": training.batch_size,
            "gamma": rectifier.gamma,
            "tau": rectifier.tau,
            "LoRA rank": training.lora_rank,
            "step chosen": facts["chosen_step"],
        }
    rows = "\n".join(f"| {name} | {value} |" for name, value in settings.items() if value is not None)
    chosen = [f"Its training was stopped before its last step: {facts['stopped']}."] if facts["stopped"] else []
    chosen += [facts["why"]] if facts["why"] else []
    if facts["chosen_step"] is not None:
        rule = "by the same rule" if facts["why"] else f"by the rule: {selection.sentence(trial.selection)}"
        chosen.append(f"Its step was chosen among those evaluated {rule}.")
    if facts["why"] or facts["chosen_step"] is not None:
        *removal, utility = benchmarks.find(trial.benchmark.name).GOALS
        chosen.append(f"Removal is {' and '.join(goal.title for goal in removal)}, utility is {utility.title}.")
    commit = facts["made_with"]["commit"]
    made = ", ".join(
        f"{name} {facts['made_with']['versions'][name]}" for name in ("torch", "transformers", "deepspeed")
    )
    return (
        f"## How\n\nMethod: {_method(trial)}, seed {trial.seed}. gamma and tau are those of {METHODS_PAPER}.\n\n"
        f"| setting | value |\n|---|---|\n{rows}\n\n{' '.join(chosen)}\n\n"
        f"Trial `{facts['trial']}` (`{facts['label']}`), made with {made}"
        f"{f', commit {commit}' if commit else ''}; the whole configuration is in `unlearning.json`."
    )


def _cost(facts: dict[str, Any], trial: Trial) -> str:
    target = facts["target_metrics"] or {}
    goals = {goal.metric: goal for goal in benchmarks.find(trial.benchmark.name).GOALS}
    names = [*goals, *sorted(name for name in facts["verified_metrics"] if name not in goals)]
    lines = ["## What it cost", "", "| metric | before | after |", "|---|---:|---:|"]
    for name in names:
        if target.get(name) is None and facts["metrics"].get(name) is None:
            continue
        title = f"**{goals[name].title}** ({goals[name].best} is best)" if name in goals else f"`{name}`"
        lines.append(f"| {title} | {_number(target.get(name))} | {_number(facts['metrics'].get(name))} |")
    if trial.benchmark.template and trial.benchmark.name in TEMPLATED:
        asked = f"Questions were asked in the prompt template `{trial.benchmark.template}`"
        lines += ["", f"{asked}: what the model gives away to another prompt is not measured."]
    if facts["held_out"]:
        lines += ["", "Before and after are of the evaluation rows that were not chosen on, every other one."]
    return "\n".join([*lines, "", _verified(facts)])


def _verified(facts: dict[str, Any]) -> str:
    """What the evaluation of the written weights said, on all rows."""
    told = "The weights in this folder were loaded and evaluated again after they were written, on all evaluation rows"
    before, now = facts["made_with"]["device"], facts["verified_on"]
    if before == now:
        return f"{told}: the same values."
    apart = "; ".join(facts["differences"]) or "none"
    return (
        f"{told}: on {now}, where the trial ran on {before}, with the losses of the trial's rows up to rounding. Other "
        f"metrics than the trial's: {apart}."
    )


def _limits() -> str:
    return (
        "## Limits\n\n"
        "- The numbers are of one trial; another seed gives others.\n"
        "- Unlearning by gradients hides as well as removes: fine-tuning on related text, sampling many answers or "
        "reading inner activations may bring some of it back. These measurements do not try that.\n"
        "- Copies of the model made before, and data kept elsewhere, are untouched.\n"
    )


def _number(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
