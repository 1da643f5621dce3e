"""A report's sentences: what ran, what GRU changes, and how far that holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from operator import itemgetter
from typing import Any

import pandas as pd

from analysis import labels
from analysis.labels import describe_method, join_names, method_label, rectifier_label, split_label
from analysis.load.goal_columns import Goals
from analysis.load.trials import evaluated, settings
from analysis.number_format import DECIMALS
from analysis.prose.tru_against_tv import ONE_SEED, compare_task_vectors
from analysis.stats import attacks, significance, tidy
from analysis.stats.chosen_settings import STUDY_COLUMNS, varied
from analysis.stats.sweep_results import Results
from analysis.stats.task_vector_strength import strength_points
from analysis.tables.detail_tables import has_task_vectors
from trainables.common.wording import format_count

STATUSES = {"out_of_memory": "out of memory", "missing": "without a result yet"}
KINDS = {
    "better": "helped {} (at least one of {goals} clearly better, none worse)",
    "slight": "improved one goal {} (another became worse, by too little to count)",
    "traded": "traded one goal for another {}",
    "worse": "made it worse {}",
    "same": "changed nothing clearly {}",
}
"""What GRU did in comparisons of a method with and without it."""
SIGNS = {1: "better", -1: "worse", 0: "not clearly changed"}
"""What is said of a goal, by `significance.tests`'s sign."""
LASTING = 0.05
"""What an attack may bring back of a removal that lasts."""
LEFT_OUT = "a side missed its target, needed no mixing, or has no FQ"


def count_trials(runs: pd.DataFrame) -> str:
    """Return `18 of 24 trials finished, 2 failed, 1 diverged`."""
    numbers = runs["status"].value_counts()
    rest = [(-int(count), STATUSES.get(str(status), status)) for status, count in numbers.items()]
    texts = [f"{-count} {status}" for count, status in sorted(rest) if status != "finished"]
    return ", ".join([f"{numbers.get('finished', 0)} of {len(runs)} trials finished", *texts])


def describe_trials(runs: pd.DataFrame) -> str:
    """Return what ran: `Compared: GA and NPO, each alone and with GRU; TV; on forget05 (5%).`; empty before a start."""
    known = runs[STUDY_COLUMNS].dropna().drop_duplicates()
    if known.empty:
        return ""
    groups: dict[str, list[str]] = {}
    for method in labels.order_methods(known["method"]):
        kinds = labels.order_rectifiers(known.loc[known["method"] == method, "rectifier.name"])
        names = [rectifier_label(kind, "alone" if len(kinds) > 1 else "").replace("w/", "with") for kind in kinds]
        groups.setdefault(join_names(names), []).append(method_label(method))
    texts = []
    for kinds, methods in groups.items():
        each = ", each" if len(methods) > 1 and kinds else ""
        texts.append(f"{join_names(methods)}{each} {kinds}".strip())
    splits = join_names(map(split_label, sorted(set(known["benchmark.split"]))))
    others = varied(runs)
    what = "objective" if has_task_vectors(runs) else "method"
    sides = ", alone and with a rectifier," if len(set(known["rectifier.name"])) > 1 else ""
    best = f", each {what}{sides} at its own best {join_names(others)}" if others else ""
    return f"Compared: {'; '.join(texts)}{';' if len(texts) > 1 else ','} on {splits}{best}."


def describe_attacks(points: pd.DataFrame) -> list[str]:
    """Return the sentence on what attacks bring back, of `stats.attacks.mean_shares`; nothing where none was made."""
    known = points.loc[points["share"].notna()] if len(points) else points
    if known.empty:
        return []
    attacked, able = ([tuple(key) for key in one[attacks.KEY].drop_duplicates().to_numpy()] for one in (points, known))
    names = [_name_side(*key[1:]) for key in attacked if key not in able]
    rest = f"; hardly anything was removed by {join_names(names)}" if names else ""
    on = f"Attacked: {format_count(len(attacked), 'chosen setting')}{rest}."
    worst = max(known.to_dict("records"), key=itemgetter("share"))
    if worst["share"] < LASTING:
        names = join_names(dict.fromkeys(known["title"]))
        return [f"No attack made brings back more than {LASTING:.0%} of what was removed: {names}. {on}"]
    untaught = known.loc[known["attack"] != "relearn"].to_dict("records")
    if worst["attack"] != "relearn" or not untaught:
        return [f"Attacks bring back up to {_describe_share(worst)}. {on}"]
    hidden = _describe_share(max(untaught, key=itemgetter("share")))
    return [
        f"Attacks that teach none of the measured rows bring back up to {hidden}. Relearning the rows themselves "
        f"brings back up to {worst['share']:.0%} ({_name_side(worst['method'], worst['rectifier'])}). {on}"
    ]


def _describe_share(row: Mapping[Hashable, Any]) -> str:
    """Return how much of what was removed an attack brought back, of which method and by what."""
    side, seeds = _name_side(row["method"], row["rectifier"]), format_count(row["n"], "seed")
    return f"{row['share']:.0%} of what was removed, by extraction strength: of {side} ({seeds}), by {row['title']}"


def _name_side(method: str, rectifier: str) -> str:
    return f"{describe_method(method, rectifier)}{' alone' * (rectifier == 'none')}"


def write_verdict(results: Results) -> list[str]:
    """Return the answer in one or two sentences: on GRU, unless the sweep has task vectors only, and on TRU."""
    if collapsed := _explain_collapse(results):
        return [collapsed]
    has_quality = results.goals.benchmark == "tofu"  # FQ, by which TRU is compared with TV
    vectors = compare_task_vectors(strength_points(results)) if has_quality and has_task_vectors(results.runs) else []
    if vectors and not any(results.runs["rectifier.name"] == "gru"):
        return vectors
    if results.chosen.empty:
        return ["No verdict: no trial has finished with a result, so nothing can be said yet.", *vectors]
    if results.tests.empty:
        return ["No verdict on GRU: no method has finished both with and without it.", *vectors]
    return [summarise_tests(results.tests, results.goals), *_describe_only_split(results), *vectors]


def _describe_only_split(results: Results) -> list[str]:
    """Return what changed for which method, and whose best settings are others with GRU, where there is one split."""
    tests, chosen = results.tests, results.chosen
    if len(set(tests["split"])) > 1 or max(tests["n"]) < 2:
        return []
    found = [describe_split(str(tests["split"].iloc[0]), tests, results.goals)]
    for name in varied(results.runs):
        kept = chosen.loc[chosen["method"].isin(tests["method"]) & chosen["rectifier.name"].isin(significance.SIDES)]
        kept = kept.assign(value=settings(kept)[name].map(str))
        texts = [
            f"{method_label(str(method))} ({join_names(rows.sort_values('rectifier.name', ascending=False)['value'])})"
            for method, rows in kept.groupby("method", sort=False)
            if rows["value"].nunique() > 1
        ]
        if texts:
            found.append(f"The best {name} alone and with GRU are different for {join_names(texts)}.")
    return [" ".join(found)]


def _explain_collapse(results: Results) -> str:
    """Return that every trial that ran to its end or diverged has collapsed, and what to try; else nothing."""
    runs, kept = results.runs, results.goals.retention
    ended = runs.loc[evaluated(runs) | (runs["status"] == "diverged")]
    gone = ended["status"].isin(["collapsed", "diverged"]) | (ended[kept.metric].round(kept.digits) == 0)
    if ended.empty or not gone.all():
        return ""
    if ended["strength"].notna().all():
        return "Every trial collapsed: try a smaller strength."
    lowest = ended["training.lr"].min() / 10
    return f"Every trial collapsed: try a smaller learning rate, such as --set training.lr={lowest:.1g}."


def explain_verdict(results: Results) -> list[str]:
    """Return sentences on what a change is, and on each split, in the order of a reader's questions."""
    if results.chosen.empty:
        return []
    tests, goals = results.tests, results.goals
    rest = [*list_beaten(results.chosen, results.models, goals), *compare_at_equal_utility(results)]
    if tests.empty or max(tests["n"]) < 2:
        return rest
    splits = [describe_split(str(split), rows, goals) for split, rows in tests.groupby("split")]
    splits = splits if len(splits) > 1 else []  # one is part of the verdict
    return [*splits, *rest, state_rule(tests, goals), *filter(None, [count_single(tests)]), describe_tests(tests)]


def state_rule(tests: pd.DataFrame, goals: Goals) -> str:
    """Return from what on a change counts, and of how many comparisons a part of this is not known."""
    rules = [
        f"it is at least {join_names(f'{significance.resolution(one):g} in {one.short}' for one in goals.compared)}"
    ]
    unknown, kept = "", goals.retention
    limits = [("forget_quality", "FQ", "ks_steps", "is more than one step of the KS distance", "KS distance is")]
    of_rows = "is beyond the 95% interval that the evaluation rows leave"
    limits += [(kept.metric, kept.short, "rows_low", of_rows, "evaluation rows are")]
    for metric, short, column, limit, source in limits:
        found = tests.loc[(tests["metric"] == metric) & (tests["n"] > 1), column]
        if found.notna().any():
            rules.append(f"of {short} it {limit}")
        if found.isna().any():
            where = f"Where the {source} missing ({sum(found.isna())} of {len(found)} comparisons)"
            unknown += f" {where}, {short} counts by its seeds alone."
    rules.append(f"every seed moved the same way (from {significance.LEAST} seeds on: its 95% interval is without 0)")
    return f"A change counts if {join_names(rules)}.{unknown}"


def count_single(tests: pd.DataFrame) -> str:
    """Return how many comparisons have no verdict for want of a second seed; empty if all have two."""
    most = [max(rows["n"]) for _, rows in tests.groupby(["split", "method"])]
    single = sum(count < 2 for count in most)
    return f"{ONE_SEED}: {single} of {len(most)} comparisons." if single else ""


def summarise_tests(tests: pd.DataFrame, goals: Goals) -> str:
    """Return in how many comparisons GRU helped, traded one goal for another, or made it worse, and of how many seeds.

    Nobody is helped where a goal's mean is worse, even by too little to count: the table beside it shows that number.
    """
    if max(tests["n"]) < 2:
        why = "no method ran with two seeds both alone and with GRU, so any difference may be chance"
        return f"No verdict on GRU: {why}; --seeds 0,1,2,3,4 runs five."
    gains = {goal.metric: goal.gain(1) for goal in goals.compared}
    signs = [gains[metric] for metric in tests["metric"]]
    groups = tests.assign(gain=signs * tests["difference"]).groupby(["split", "method"])
    pairs = [rows for _, rows in groups if not rows["sign"].hasnans]
    kinds = Counter(_classify(rows) for rows in pairs)
    total, seeds = len(pairs), sorted({count for rows in pairs for count in rows["n"]})
    if not total:
        return "No verdict: no comparison has all goals, and two seeds, on both sides."
    goals_compared = join_names(goal.short for goal in goals.compared)
    where = {kind: f"in {'all' if count == total else count}" for kind, count in kinds.items()}
    where = dict.fromkeys(kinds, "in the only comparison") if total == 1 else where
    texts = [text.format(where[kind], goals=goals_compared) for kind, text in KINDS.items() if kind in kinds]
    if "better" not in kinds and total > 1:
        texts.insert(0, "helped in none")
    start = f"Of {total} comparisons, GRU" if total > 1 else "GRU"
    count = " to ".join(dict.fromkeys(f"{count}" for count in (seeds[0], seeds[-1])))
    tested = tests.dropna(subset=["p"])
    sure = f"{sum(tested['adjusted'] < significance.LEVEL)} of {len(tested)} changes are significant"
    if tested.empty:
        few = f"too few for a significance test, which takes {significance.LEAST}"
        sure = few if seeds[-1] < significance.LEAST else "no test is possible, as they all differ alike"
    return f"{start} {join_names(texts)}. Each rests on {count} seeds: {sure}."


def _classify(pair: pd.DataFrame) -> str:
    """Return the kind of a comparison, from the rows of its goals."""
    low, high = min(pair["sign"]), max(pair["sign"])
    if low < 0 < high:
        return "traded"
    if high > 0:
        return "slight" if min(pair["gain"]) < 0 else "better"
    return "worse" if low < 0 else "same"


def describe_split(split: str, tests: pd.DataFrame, goals: Goals) -> str:
    """Return `On forget05 (5%), with GRU FQ is better for GD and NPO, worse for GA; MU is better for ...`."""
    parts = []
    for goal in goals.compared:
        rows = tests.loc[tests["metric"] == goal.metric]
        groups = {
            text: list(map(method_label, rows.loc[rows["sign"] == sign, "method"])) for sign, text in SIGNS.items()
        }
        groups["without a verdict"] = list(map(method_label, rows.loc[rows["sign"].isna(), "method"]))
        texts = [f"{text} for {join_names(methods)}" for text, methods in groups.items() if methods]
        parts.append(f"{goal.short} is {', '.join(texts)}")
    return f"On {split_label(split)}, with GRU {'; '.join(parts)}."


def describe_tests(tests: pd.DataFrame) -> str:
    """Return how many differences are significant; of fewer seeds than a test takes that there is none."""
    tested = tests.dropna(subset=["p"])
    if tested.empty:
        most, least = max(tests["n"]), significance.LEAST
        why = f"there are at most {most}" if most < least else "where there are as many, they all differ alike"
        return f"No difference is called significant here: that takes {least} seeds on both sides, and {why}."
    sure = sum(tested["adjusted"] < significance.LEVEL)
    rest = f"; {len(tests) - len(tested)} more cannot be tested" if len(tests) > len(tested) else ""
    return (
        f"{sure} of {len(tested)} differences are significant at {significance.LEVEL:.0%} (two-sided paired t tests "
        f"over the seeds, p adjusted by Holm){rest}."
    )


def list_beaten(chosen: pd.DataFrame, models: pd.DataFrame, goals: Goals) -> list[str]:
    """Return which chosen settings are no better than the original model on any goal, in a sentence if there are any.

    A change between two such settings is no useful unlearning, however large.
    """
    chosen = chosen.loc[chosen["rectifier.name"].isin(significance.SIDES)]
    originals = models.loc[models["role"] == "original"].set_index("split")
    beaten = chosen["benchmark.split"].isin(originals.index)
    for goal in goals.compared:
        beaten &= goal.gain(1) * (chosen[goal.metric] - chosen["benchmark.split"].map(originals[goal.metric])) <= 0
    names = [
        f"{labels.describe_method(method, rectifier)} on {split}"
        for split, method, rectifier in chosen.loc[beaten, STUDY_COLUMNS].to_numpy()
    ]
    text = "No better than the original model on any goal, so that a change among them is no useful unlearning"
    return [f"{text}: {len(names)} of {len(chosen)} chosen settings ({', '.join(names)})."] if names else []


def compare_at_equal_utility(results: Results) -> list[str]:
    """Return one sentence for each split on FQ where both sides were mixed back to the same MU (UWC)."""
    if results.goals.benchmark != "tofu":
        return []
    frame = tidy.from_runs(results)
    mixed = frame.loc[frame["target"].notna() & frame["chosen"] & frame["rectifier"].isin(["none", "gru"])]
    wide = mixed.pivot(index=["split", "method", "target"], columns=["metric", "rectifier"], values="value")
    if not {("reached", "none"), ("reached", "gru")} <= set(wide):
        return []
    wide = wide.dropna(subset=[("reached", "none"), ("reached", "gru")])
    sound = (wide["reached"] == 1).all(axis=1) & (wide["unmixed"] == 0).all(axis=1)
    gain = (wide["forget_quality", "gru"].round(DECIMALS) - wide["forget_quality", "none"].round(DECIMALS)).where(sound)
    texts = []
    for split, gains in gain.groupby("split"):
        compared = gains.dropna()
        shares = join_names(f"{share:.0%}" for share in sorted(set(gains.index.get_level_values("target"))))
        left_out = f" {len(gains) - len(compared)} of {len(gains)} pairs are left out: {LEFT_OUT}."
        texts.append(
            f"At equal utility on {split_label(str(split))} (UWC: mixed back to {shares} of the original model's MU) "
            f"FQ is higher with GRU in {sum(compared > 0)} of {len(compared)} pairs of a method and share, lower in "
            f"{sum(compared < 0)}.{left_out if len(compared) < len(gains) else ''}"
            f"{f' {ONE_SEED}.' if max(mixed['n']) < 2 else ''}"
        )
    return texts
