"""Whether the trial that the selection rule chooses can be shipped: one answer for console, status, report and card."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.benchmarks.selection import Candidate, Results
from trainables.config.settings import Selection

MIN_REMOVAL = 0.1
"""The share of what the target model has that a choice removes at least; less is as good as chance."""


@dataclass(frozen=True)
class ShippingVerdict:
    """`key`: the chosen trial, if there is one. `reason`: why not to ship it, or empty. `outcome`: removed and kept.

    `doubt`: why not to ship it yet, though its model is exported for people to look at.
    """

    key: str | None
    reason: str = ""
    outcome: str = ""
    doubt: str = ""

    def describe(self, trial: str) -> str:
        """Return the verdict as a sentence; `trial`: what to call the chosen one."""
        if self.key is None:
            return f"No verdict: {self.reason}."
        if self.reason:
            return f"Ship none: {self.reason}. The nearest is {trial}: {self.outcome}."
        if self.doubt:
            return f"Ship none yet: {self.doubt}. The nearest is {trial}: {self.outcome}."
        return f"Ship {trial}: {self.outcome}."


def choose_and_judge_trial(
    benchmark: str, rule: Selection, results: Results, target: Mapping[str, Any]
) -> ShippingVerdict:
    """Return the verdict on trials, by id, of one split; `target`: the evaluation of their target model, or empty."""
    kind, utility = benchmarks.get_benchmark(benchmark), selection.pick_utility(target, benchmark, rule)
    chosen = selection.pick_candidate(selection.list_candidates(results, benchmark, rule), utility, rule)
    nothing = kind.explain_nothing_to_remove(target.get("metrics") or {})
    if chosen is None:
        measured = any(one.get("metrics") for one in results.values())
        why = "no utility could be measured; give more or other retain rows"
        return ShippingVerdict(None, nothing or (why if measured else "no trial has finished with a result"))
    now, before = (dict(selection.pick_half_metrics(one, rule, reported=True)) for one in (results[chosen.key], target))
    told = kind.describe_outcome(now, before) or benchmarks.format_goal_values(benchmark, now)
    known = selection.make_candidate("", benchmark, selection.pick_half_metrics(target, rule))
    shares = [one.removal for one in (chosen, known) if one and one.removal is not None]  # of own rows: said, negative
    little = kind.name == "own" and len(shares) == 2 and shares[0] < shares[1] / 2
    doubt = "most is still there; other settings or a lower selection.share may remove more" if little else ""
    outcome = "; ".join(filter(None, (told, selection.explain_missing_utility_bar(utility, rule))))
    return ShippingVerdict(chosen.key, nothing or _find_fault(chosen, known, rule), outcome, doubt)


def _find_fault(chosen: Candidate, target: Candidate | None, rule: Selection) -> str:
    """Return what the chosen trial lacks: as it was chosen, every other one lacks it, too."""
    if rule.rule != "highest_removal" and chosen.utility <= 0:
        return "the utility is 0; give more or other retain rows"
    if target is None:
        return ""
    if rule.rule == "utility_floor" and chosen.utility < rule.share * target.utility:
        return f"less than {rule.share:.0%} of the target model's utility is kept"
    if chosen.removal is None or target.removal is None:
        return ""
    removed = chosen.removal - target.removal
    if removed <= 0:
        return "nothing was removed"
    return "" if removed >= MIN_REMOVAL * abs(target.removal) - 1e-9 else f"less than {MIN_REMOVAL:.0%} was removed"
