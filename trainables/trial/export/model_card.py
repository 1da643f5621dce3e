"""The model card of an exported model: what was forgotten, how, and what it cost. Counts and hashes, never text."""

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.common.wording import escape_markdown
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.config.trial import Trial
from trainables.methods.method_constants import resolve_constants

CARD_TEMPLATE = Path(__file__).with_name("model_card.md.j2")


def render_model_card(facts: dict[str, Any], trial: Trial) -> str:
    """Return README.md of a model folder, from the facts that `model_folder` collects; it names no places."""
    chosen = benchmarks.get_benchmark(trial.benchmark.name)
    rectifier, facts = trial.rectifier.name, facts | {"stopped": escape_markdown(facts["stopped"] or "")}
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        base_model=facts["base_model"],
        base_model_relation="finetune" if facts["base_model"] else None,
        tags=["unlearning", trial.method.replace("_", "-"), *([] if rectifier == "none" else [rectifier])],
        datasets=_hub_data(trial) or None,
        model_name=trial.label(),
    )
    constants = vars(resolve_constants(trial.method, trial.objective, trial.benchmark.split))
    parts: dict[str, Any] = {"task_vector": trial.task_vector} if trial.task_vector else {}
    parts = parts or {
        "objective": [(name, constants.get(name)) for name in METHODS[trial.method].reads],  # no `idk`, a place
        "training": trial.training,
        "rectifier": trial.rectifier,
    }
    settings = {f"{part}.{name}": value for part, section in parts.items() for name, value in section}
    values = facts | {
        "plain": escape_markdown,
        "method": METHODS[trial.method].label + ("" if rectifier == "none" else f" with {RECTIFIERS[rectifier].label}"),
        "seed": trial.seed,
        "benchmark": trial.benchmark,
        "data": _hub_data(trial),
        "template": trial.benchmark.template if chosen.ASKS_BY_TEMPLATE else None,
        "settings": settings | {"optimizer steps": facts["steps"], "step chosen": facts["chosen_step"]},
        "choice": _choice(facts, trial),
        "measured": _metric_rows(facts, trial),
    }
    return str(ModelCard.from_template(data, template_path=str(CARD_TEMPLATE), **values)) + "\n"


def _hub_data(trial: Trial) -> list[str]:
    mark = trial.benchmark.fingerprint or ""
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


def _metric_rows(facts: dict[str, Any], trial: Trial) -> list[tuple[str, str, str]]:
    before, after = facts["target_metrics"] or {}, facts["metrics"]
    goals = {goal.metric: goal for goal in benchmarks.get_benchmark(trial.benchmark.name).GOALS}
    rows = []
    for name in [*goals, *sorted(set(facts["verified_metrics"]) - set(goals))]:
        if before.get(name) is None and after.get(name) is None:
            continue
        title = f"**{goals[name].title}** ({goals[name].best} is best)" if name in goals else f"`{name}`"
        rows.append((title, _format(before.get(name)), _format(after.get(name))))
    return rows


def _format(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
