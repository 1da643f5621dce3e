"""A report's answer: one sentence, the table behind it, and what a reader has to know before believing it."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis import labels
from analysis.load.trials import describe_mixed_versions, evaluated
from analysis.stats.rectifier_comparison import RectifierComparison
from analysis.stats.significance import ALPHA, MIN_SEEDS_FOR_DIRECTION, MIN_TEST_SEEDS, RESAMPLE_COUNT
from analysis.stats.sweep_results import SweepResults, pick_setting_by_rule
from analysis.tables.detail_tables import MISSING_HALF_METRICS_TEXT
from analysis.tables.printing import format_number, format_signed_difference
from trainables.benchmarks import selection
from trainables.common.wording import format_count

TRIAL_STATUS_WORDS = {"out_of_memory": "out of memory", "missing": "without a result yet"}
MAX_DIFFERENCES_SHOWN = 24
CLEAR_DIFFERENCE_NOTE = (
    "Clear: over the seeds that both sides have, the 95% interval is without 0 (below five seeds: all moved alike), "
    "and the difference exceeds the measure's resolution, a step of the KS test and what the rows leave open. Of many "
    "differences the table has the clear ones; tables/differences.csv has all."
)
SIGN_FLIP_TEST_NOTE = (
    f"Interval: bootstrap over seeds (BCa, {RESAMPLE_COUNT:,} resamples). p: exact sign-flip test, adjusted by Holm "
    "over all rectifiers of a split, objective and goal; clear where it is below 0.05 and the difference exceeds what "
    "rows leave open. Seconds of a step: median, in brackets times none's. tables/rectifiers.csv has all."
)
"""What the table of differences says below it, of one rectifier and of several."""


def describe_trial_counts(runs: pd.DataFrame) -> str:
    """Return `18 of 24 trials finished, 2 failed, 1 diverged`."""
    numbers = runs["status"].value_counts()
    rest = [(-int(count), TRIAL_STATUS_WORDS.get(str(status), status)) for status, count in numbers.items()]
    texts = [f"{-count} {status}" for count, status in sorted(rest) if status != "finished"]
    return ", ".join([f"{numbers.get('finished', 0)} of {len(runs)} trials finished", *texts])


def select_deciding_differences(comparison: RectifierComparison) -> pd.DataFrame:
    """Return what rectifiers change of each method at its own best settings, of the goals that decide."""
    rows = comparison.differences
    return rows.loc[rows["metric"].isin([goal.metric for goal in comparison.deciding_goals])]


def tabulate_rectifier_differences(comparison: RectifierComparison) -> pd.DataFrame:
    """Return `select_deciding_differences` as texts, one row for each method and goal, and whether each is clear."""
    goals = {goal.metric: goal for goal in comparison.deciding_goals}
    found, rows = select_deciding_differences(comparison), []
    several = len(set(found["split"])) > 1
    shown = found if len(found) <= MAX_DIFFERENCES_SHOWN else found.loc[found["sign"].isin([-1.0, 1.0])]
    costs = {(row["split"], row["method"], row["rectifier"]): row for row in comparison.step_seconds.to_dict("records")}
    for row in shown.to_dict("records"):
        goal = goals[row["metric"]]
        line = {"Split": labels.format_forget_split(row["split"])} if several else {}
        line |= {"Method": labels.describe_method(row["method"], row["rectifier"]), "Goal": labels.goal_head(goal)}
        line |= {"Without": format_number(row["none"]), "With": format_number(row["value"])}
        line["Difference"] = format_signed_difference(row["difference"], goal.digits)
        ends = [format_signed_difference(row[end], goal.digits) for end in ("low", "high")]
        line["95% interval"] = labels.DASH if pd.isna(row["low"]) else " to ".join(ends)
        line["Seeds"] = f"{row['n']}"
        if comparison.has_several:
            line["Adjusted p"] = format_number(row["adjusted"], ".2g")
            cost = costs[row["split"], row["method"], row["rectifier"]]
            slower = format_number(cost["slower"], ".2f")
            line["Seconds of a step"] = f"{format_number(cost['seconds'], '.3g')} (x {slower})"
        line["Clear?"] = {1.0: "better", -1.0: "worse", 0.0: "no"}.get(row["sign"], "too few seeds")
        rows.append(line)
    return pd.DataFrame(rows, dtype="str")


def describe_verdict(comparison: RectifierComparison) -> str:
    """Return the answer in one sentence, nothing where no trial has a rectifier."""
    results = comparison.results
    if collapsed := _explain_collapse(results):
        return collapsed
    if results.chosen.empty:
        return "No verdict: no trial has finished with a result, so nothing can be said yet."
    found = select_deciding_differences(comparison).dropna(subset=["difference"])
    if found.empty:
        if set(results.runs["rectifier.name"]) == {"none"}:
            return ""
        return "No verdict on rectifiers: no method has finished both with and without one."
    known = found.loc[found["sign"].notna()]
    counted, how = (found, "") if known.empty else (known, "clearly ")
    texts = []
    for goal in comparison.deciding_goals:
        rows = counted.loc[counted["metric"] == goal.metric]
        signs = goal.orient_value(1) * rows["difference"] if known.empty else rows["sign"]
        if len(rows):
            better, worse = (int(sum(way * signs > 0)) for way in (1, -1))
            of = f"{len(rows)}{'' if texts else ' comparisons'}"
            texts.append(f"{goal.short} is {how}better in {better} of {of} and worse in {worse}")
    names, least, most = set(counted["rectifier"]), min(counted["n"]), max(counted["n"])
    whose = labels.format_rectifier_name(str(*names)) if len(names) == 1 else "a rectifier"
    seeds = format_count(most, "seed") if least == most else f"{least} to {most} seeds"
    if known.empty:
        tested = max(MIN_TEST_SEEDS, math.ceil(1 + math.log2(len(names) / ALPHA)))  # m rectifiers: m 2 / 2^n <= ALPHA
        takes = tested if comparison.has_several else MIN_SEEDS_FOR_DIRECTION
        few = f"No verdict on {whose} yet: that takes {takes} seeds, and here {'is' if most == 1 else 'are'} {seeds}"
        return f"{few}. So far {', '.join(texts)}."
    few = f", too few for a test, which takes {MIN_TEST_SEEDS}" if most < MIN_TEST_SEEDS else ""
    return f"With {whose}, {', '.join(texts)} ({seeds} each{few})."


def describe_recommended_methods(results: SweepResults) -> str:
    """Return which method to take of each split, what it costs, and how many seeds say so; nothing before a result."""
    x, y, rule = results.goals.removal_goal, results.goals.retention, results.rule
    parts = []
    for split, rows in results.chosen.groupby("benchmark.split"):
        where = labels.format_forget_split(str(split))
        for best in pick_setting_by_rule(rows, rule).to_dict("records"):
            share = f", {best[y.metric] / best['original']:.1%} of the original's" if best["original"] > 0 else ""
            whose = labels.describe_method(best["method"], best["rectifier.name"])
            numbers = (f"{goal.short} {format_number(best[goal.metric], f'.{goal.digits}f')}" for goal in (x, y))
            seeds = format_count(best["n"], "seed")
            how = f"has the {x.best} {x.short}"
            if rule.halves or rule.seeds:  # by other numbers than these
                how = "is chosen"
            elif rule.rule == "highest_utility" or (rule.rule == "utility_floor" and not best["kept"]):
                how = f"keeps most {y.short}"
            elif rule.rule == "utility_floor":
                how += f" of those that keep {rule.share:.0%} of {y.short}"
            parts.append(f"{where}: {whose} {how}, {' at '.join(numbers)}{share} ({seeds}).")
    return " ".join(parts)


def _explain_collapse(results: SweepResults) -> str:
    """Return that every trial that ran to its end or diverged has collapsed, and what to try; else nothing."""
    runs, kept = results.runs, results.goals.retention
    ended = runs.loc[evaluated(runs) | (runs["status"] == "diverged")]
    gone = ended["status"].isin(["collapsed", "diverged"]) | (ended[kept.metric].round(kept.digits) == 0)
    originals = results.models.loc[results.models["role"] == "original", kept.metric]
    if ended.empty or not gone.all():
        return ""
    if len(originals) and (originals.round(kept.digits) == 0).all():
        return f"No verdict: the target model's {kept.short} is 0 before unlearning, so there is none to keep."
    if ended["strength"].notna().all():
        return "Every trial collapsed: try a smaller strength."
    lr = ended["training.lr"].min() / 10
    return f"Every trial collapsed: try a smaller learning rate, --set training.lr={lr:.1g}."


def list_verdict_caveats(results: SweepResults) -> list[str]:
    """Return what a reader must know before believing the verdict, a sentence each."""
    runs, chosen, rule = results.runs, results.chosen, results.rule
    notes = describe_mixed_versions(runs)
    if set(chosen["n"]) == {1}:
        notes.append("Every number is one seed: a difference of any size may be chance (--seeds 0,1,2,3,4 runs five).")
    for limit in sorted(set(runs.reindex(columns=["benchmark.limit"])["benchmark.limit"].dropna())):
        most = f"at most {limit:g} rows of each task (benchmark.limit)"
        what = "rows beyond these are not measured"  # a person's own files may have no more
        if results.goals.benchmark != "own":
            what = "this tests the set-up, and its numbers compare with no others"
        notes.append(f"Evaluated on {most}: {what}.")
    if rule.halves and (without := sum(evaluated(runs) & ~runs["halves"])):
        notes.append(f"Evaluated trials without {MISSING_HALF_METRICS_TEXT}, are left out: {without}.")
    for model in results.models.to_dict("records"):
        evaluation = f"{model['split']}: the {model['role']} model's evaluation {model['evaluation']}"
        if model["status"] != "finished":
            notes.append(f"{evaluation} is {model['status']}.")
        elif rule.halves and not model["halves"]:
            notes.append(f"{evaluation} has no {MISSING_HALF_METRICS_TEXT}.")
    for split, rows in chosen.loc[chosen["bar"].isna()].groupby("benchmark.split"):
        original = rows["choice.original"].iloc[0]
        if why := selection.explain_missing_utility_bar(None if pd.isna(original) else original, rule):
            notes.append(f"{split}: {why}.")
    return notes


def describe_utility_removal_shortfalls(results: SweepResults) -> Iterator[str]:
    """Yield whether the chosen settings keep utility enough and forget enough."""
    goals, chosen = results.goals, results.chosen
    if chosen.empty:
        return
    bounded = chosen.loc[chosen["bar"].notna()]
    if results.rule.rule == "utility_floor" and not bounded["kept"].all():
        kept = f"{sum(bounded['kept'])} of {len(bounded)} chosen settings keep {results.rule.share:.0%}"
        yield f"{kept} of the original model's {goals.retention.short}: below that, forgetting is damage."
    keeping = bounded.loc[bounded["kept"]]
    chosen, which = (keeping, " that keeps enough" * (len(keeping) < len(chosen))) if len(keeping) else (chosen, "")
    if goals.benchmark == "tofu" and max(chosen["forget_quality"].dropna(), default=0) < (enough := math.log(ALPHA)):
        best: Any = chosen.loc[chosen["forget_quality"].idxmax()]
        whose = labels.describe_method(best["method"], best["rectifier.name"])
        found = f"{format_number(best['forget_quality'], '.2f')} ({whose})"
        least = f"it takes {enough:.2f} to pass for a model that never saw the rows (p = {ALPHA:g})"
        yield f"No chosen setting{which} forgets enough: the best FQ is {found}, and {least}."
