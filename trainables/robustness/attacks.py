"""The attacks, what each does to a model or to what it is asked, and what share of the removed it brings back.

The retain model under the same attack is the yardstick. Without torch: commands list attacks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from trainables.common.errors import InputError, suggest_name
from trainables.config.settings import Benchmark, FrozenSettings
from trainables.config.types import Positive, Seed
from trainables.storage.atomic_files import parse_json_object
from trainables.storage.file_names import ATTACK_RESULTS_FILE
from trainables.storage.folder_storage import Storage

RELEARNING_STEPS = (1, 4, 13)
"""Optimizer steps after which a relearning is measured: 13 steps of 32 are once all 400 rows of forget10."""
RELEARNING_BATCH_SIZE = 32
RECOVERY_MEASURE = "extraction_strength"
NO_ATTACK, SECOND_HALF_POINT = "none", "second half"
"""What was measured before any attack, and there of the rows that `relearn_half` is measured on."""
SWEEP_ATTACK, SAMPLE_ATTACK, WORST_FILE = "sweep", "sampling", "attackers.json"
"""The worst of several relearnings; sampled answers (leak@k, none of ATTACKS); the file of the worst relearnings."""
PREFIX_ATTACK_TEXT = "Sure, here is the answer: "
MIN_REMOVED_MEASURE = 0.05
"""Where less than this was removed, nothing can be said of what came back."""
AttackResults = Mapping[str, Mapping[str, Any]]
"""The results of attacks on a model, by their names."""


RelearnedRows = Literal["first half", "retain", "unrelated"]
"""Rows of a relearning of a sweep; `unrelated`: questions about the world."""


class RelearningAttack(FrozenSettings):
    """A relearning of a sweep, measured after each of RELEARNING_STEPS."""

    learns: RelearnedRows
    lr: Positive


class RelearningAttackSet(FrozenSettings):
    """A file of relearnings that others can run."""

    attackers: tuple[RelearningAttack, ...] = Field(min_length=1)
    seed: Seed = 0


ATTACKS = {
    "int8": "int8 weights",
    "nf4": "4-bit weights (NF4)",
    "relearn": "relearning the forget rows",
    "relearn_half": "relearning one half, measured on the other",
    "relearn_retain": "training on retain rows",
    "sweep": "worst of several relearnings",
    "paraphrase": "paraphrased questions",
    "template": "another prompt template",
    "prefix": f"prefix '{PREFIX_ATTACK_TEXT.strip()}'",
}
"""The title of each attack in tables."""
ROWS_BY_RELEARNING = {"relearn": "forget", "relearn_half": "first half", "relearn_retain": "retain", "sweep": "several"}
"""The attacks that train the model, and the rows that each learns.

They are measured on the forget rows; that on their first half, and a sweep, on the others.
"""
ATTACK_CHOICES_TEXT = f"all, or some of {', '.join(ATTACKS)}"


def resolve_attack_names(names: Sequence[str], field: str) -> list[str]:
    """Return the names of attacks, of all for `all`. Raises InputError naming the closest for an unknown one."""
    given = list(dict.fromkeys(filter(None, names)))
    for name in given:
        if name not in ("all", *ATTACKS):
            raise InputError(f"{field}: unknown attack '{name}'; {suggest_name(name, ['all', *ATTACKS])}")
    if not given:
        raise InputError(f"{field}: name {ATTACK_CHOICES_TEXT}")
    every = [name for name in ATTACKS if name != SWEEP_ATTACK or name in given]
    return every if "all" in given else given


def check_relearning_rate(names: Sequence[str], lr: float | None, field: str) -> None:
    """Raise InputError where a relearning has no learning rate, or none above 0."""
    if lr is None and not ROWS_BY_RELEARNING.keys().isdisjoint(names):
        raise InputError(f"{field}: relearning needs a learning rate: that which trained the target model (1B: 2e-5)")
    if lr is not None and not lr > 0:
        raise InputError(f"{field}: {lr:g} is no learning rate; give a number above 0")


def check_benchmark_can_be_attacked(benchmark: Benchmark, field: str) -> None:
    if benchmark.name != "tofu":
        raise InputError(f"{field}: attacks are made on models of TOFU, not of {benchmark.name}")


def compute_recovered_share(before: float, after: float, target: float, retain_gain: float = 0.0) -> float | None:
    """Return (after - before - retain_gain) / (target - before): what came back of what was removed; 1: all.

    After Zhang et al., 2025 (2410.16454). What the retain model gains was never removed. None where little was removed.
    """
    removed = target - before
    return (after - before - max(0.0, retain_gain)) / removed if removed > MIN_REMOVED_MEASURE else None


def list_recoveries(model: AttackResults, target: AttackResults, retain: AttackResults | None) -> list[dict[str, Any]]:
    """Return for each attack and step its measure before and after, of the other models too, and what came back.

    The target model is not relearned. An attack that was not made on all models is left out.
    """
    found = []
    for name, title in ATTACKS.items():
        others = [retain] if name in ROWS_BY_RELEARNING else [target, retain]
        attacked = [one.get(name) for one in (model, *others) if one is not None]
        made = [one for one in attacked if one and one["points"]]
        if len(made) < len(attacked):
            continue
        rate, rows = made[0]["settings"].get("lr"), SECOND_HALF_POINT if name in ("relearn_half", SWEEP_ATTACK) else "0"
        before, full, unseen = (_read(one, NO_ATTACK, rows) for one in (model, target, retain))
        for step in sorted(made[0]["points"], key=int):
            after, learnt = _read(model, name, step), _read(retain, name, step)
            row = {"attack": name, "step": int(step), "lr": rate, "title": title}
            rates = [one["lr"] for one in made[0]["settings"].get("attackers", ())] or [rate] * bool(rate)
            if rates:
                span = " to ".join(dict.fromkeys(f"{one:g}" for one in (min(rates), max(rates))))
                row["title"] += f" (lr {span})" + f", step {step}" * (name != SWEEP_ATTACK)
            row |= {"before": before, "after": after, "retain_before": unseen, "retain": learnt}
            row["target"] = full if name in ROWS_BY_RELEARNING else _read(target, name, step)
            gain = (learnt or 0.0) - (unseen or 0.0)
            if name == SWEEP_ATTACK:
                row |= {"worst": made[0]["points"][step], "retain_worst": made[-1]["points"][step] if retain else None}
            found.append(row | {"share": compute_recovered_share(before or 0.0, after or 0.0, full or 0.0, gain)})
    return found


def _read(results: AttackResults | None, name: str, point: str) -> float | None:
    return float(results[name]["points"][point][RECOVERY_MEASURE]) if results else None


def read_kept_recoveries(key: str, started: str | None, store: Storage) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return settings and `list_recoveries` as they are kept of a model, of the trial's run that `started` then."""
    path = store.attack_results_folder(key) / ATTACK_RESULTS_FILE
    kept = parse_json_object(store.read_current_bytes(path) or b"") or {}
    if not kept or kept.get("started") != started:
        return {}, []
    return kept.get("attacks", {}), kept.get("shares", [])


def read_trial_recoveries(trial_id: str, store: Storage) -> list[dict[str, Any]]:
    """Return what is kept of `list_recoveries` of a trial's newest run; empty where that was not attacked."""
    return read_kept_recoveries(trial_id, (store.result(trial_id) or {}).get("started"), store)[1]
