"""A report's sentences: what the trials are, what GRU changes and how far that holds, and TRU against TV."""

from __future__ import annotations

import pandas as pd

from analysis.labels import (
    DECIMALS,
    format_number,
    join_names,
    method_label,
    order_methods,
    order_rectifiers,
    rectifier_label,
    split_label,
)
from analysis.load.goal_columns import Goals, goals_of_runs
from analysis.stats import significance, tidy
from analysis.stats.selection import STUDY_COLUMNS, varied
from analysis.stats.sweep_results import Results
from analysis.stats.task_vector_strength import strength_points, utility_at_equal_quality
from analysis.tables.detail_tables import has_task_vectors

STATUSES = {"out_of_memory": "out of memory", "missing": "without a result yet"}
KINDS = {"better": "improved", "traded": "traded one goal for another in", "worse": "worsened it in"}
KINDS |= {"same": "clearly changed nothing in"}
SIGNS = {1: "better", -1: "worse", 0: "not clearly changed"}
"""What is said of a goal, by `significance.tests`'s sign."""
ONE_SEED = "One seed, no verdict"
LEFT_OUT = "a side missed its target, needed no mixing, or has no FQ"


def count_trials(runs: pd.DataFrame) -> str:
    """Return `18 of 24 trials finished, 2 failed, 1 diverged`."""
    numbers = runs["status"].value_counts()
    rest = [(-int(count), STATUSES.get(str(status), status)) for status, count in numbers.items()]
    texts = [f"{-count} {status}" for count, status in sorted(rest) if status != "finished"]
    return ", ".join([f"{numbers.get('finished', 0)} of {len(runs)} trials finished", *texts])


def describe_trials(runs: pd.DataFrame) -> str:
    """Return what the trials are of: `GA and NPO, alone and w/ GRU, on forget05 (5%)`; empty before any has started."""
    known = runs[STUDY_COLUMNS].dropna().drop_duplicates()
    if known.empty:
        return ""
    splits = join_names(map(split_label, sorted(set(known["benchmark.split"]))))
    methods = map(method_label, order_methods(known["method"]))
    kinds = [rectifier_label(kind, "alone") for kind in order_rectifiers(known["rectifier.name"])]
    return f"{join_names(methods)}, {join_names(kinds)}, on {splits}"


def ask_question(runs: pd.DataFrame) -> str:
    """Return what the sweep can answer."""
    if not _compares_vectors(runs):
        others = varied(runs)
        return f"Does GRU help, at each method's own best {join_names(others)}?" if others else "Does GRU help?"
    if any(runs["rectifier.name"] == "gru"):
        return "Does GRU help, and does TRU keep more than TV?"
    return "Does TRU keep more than TV?"


def _compares_vectors(runs: pd.DataFrame) -> bool:
    """Return whether TRU is to be compared with TV: they are over FQ, which only TOFU has."""
    return goals_of_runs(runs).benchmark == "tofu" and has_task_vectors(runs)


def write_verdict(results: Results) -> list[str]:
    """Return the answer as a whole, then sentences on GRU, unless the sweep is about task vectors only, and on TRU."""
    tests, goals = results.tests, results.goals
    vectors = compare_task_vectors(strength_points(results)) if _compares_vectors(results.runs) else []
    if vectors and not any(results.runs["rectifier.name"] == "gru"):
        return vectors
    if results.chosen.empty:
        return ["No trial of this sweep has finished with a result, so nothing can be said yet.", *vectors]
    if tests.empty:
        text = "This sweep holds no method both with and without GRU that finished, so GRU cannot be judged from it."
        return [text, *vectors]
    rest = [*list_beaten(results.chosen, results.models, goals), *compare_at_equal_utility(results), *vectors]
    if max(tests["n"]) < 2:
        more = "no comparison has two seeds on both sides; --seeds 0,1,2,3,4 runs five."
        return [f"{ONE_SEED}: {more}", *filter(None, [count_kept(results)]), *rest]
    counted = [state_rule(tests, goals), count_single(tests), count_kept(results), describe_tests(tests)]
    found = [summarise_tests(tests), " ".join(filter(None, counted))]
    return [*found, *(describe_split(str(split), rows, goals) for split, rows in tests.groupby("split")), *rest]


def state_rule(tests: pd.DataFrame, goals: Goals) -> str:
    """Return from what on a change counts, and of how many comparisons a part of this is not known."""
    least = join_names(f"{significance.resolution(goal):g} in {goal.short}" for goal in goals.compared)
    beyond, unknown = "", ""
    limits = [("forget_quality", "FQ", "ks_steps", "one step of its KS test's lattice", "KS distance is")]
    kept = (goals.retention.metric, goals.retention.short)
    limits += [(*kept, "rows_low", "the 95% interval that the evaluation rows alone leave", "evaluation rows are")]
    for metric, short, column, limit, source in limits:
        found = tests.loc[(tests["metric"] == metric) & (tests["n"] > 1), column]
        if found.notna().any():
            beyond += f" of {short} beyond {limit},"
        if found.isna().any():
            where = f"In {sum(found.isna())} of {len(found)} comparisons the {source} missing"
            unknown += f" {where}: there {short} counts by its seeds alone."
    return (
        f"A change counts from {least} on,{beyond} and where all seeds that both sides have moved the same way (from "
        f"{significance.LEAST} seeds on: where its 95% interval does not hold 0).{unknown}"
    )


def count_single(tests: pd.DataFrame) -> str:
    """Return how many comparisons have no verdict for want of a second seed; empty if all have two."""
    most = [max(rows["n"]) for _, rows in tests.groupby(["split", "method"])]
    single = sum(count < 2 for count in most)
    return f"{ONE_SEED}: {single} of {len(most)} comparisons." if single else ""


def summarise_tests(tests: pd.DataFrame) -> str:
    """Return in how many comparisons GRU improved the trade-off, traded one goal for another, or worsened it."""
    pairs = [list(rows["sign"]) for _, rows in tests.groupby(["split", "method"])]
    kinds = pd.Series([_classify(signs) for signs in pairs if not pd.isna(signs).any()], dtype="str").value_counts()
    total = kinds.sum()
    if not total:
        return "GRU's effect on the trade-off cannot be judged: no comparison has all goals on both sides."
    start = f"GRU improved the trade-off (a goal better, none worse) in {kinds.get('better', 'none')} of {total}"
    others = [f"{text} {kinds[kind]}" for kind, text in KINDS.items() if kind in kinds and kind != "better"]
    return f"{join_names([f'{start} comparisons', *others])}."


def _classify(signs: list[float]) -> str:
    low, high = min(signs), max(signs)
    if low < 0 < high:
        return "traded"
    return "better" if high > 0 else "worse" if low < 0 else "same"


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


def count_kept(results: Results) -> str:
    """Return on how many chosen settings each side keeps the utility that the rule asks for; empty without a bar."""
    pairs, rule = results.pairs, results.rule
    if rule.rule != "utility_floor" or any(pairs["bar"].isna()):
        return ""
    kept = {side: sum(rows["kept"]) for side, rows in pairs.groupby("rectifier.name")}
    share = f"At least {rule.share:.0%} of the original model's {results.goals.retention.short}"
    return f"{share} is kept in {kept['gru']} of {len(pairs) // 2} with GRU, in {kept['none']} without it."


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
        " ".join(filter(None, [method_label(method), rectifier_label(rectifier), "on", split]))
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


def compare_task_vectors(points: pd.DataFrame) -> list[str]:
    """Return one sentence for each split on TRU against TV, from `strength_points`: who keeps more MU at which FQ."""
    strengths = points.loc[points["kind"] == "strength"]
    methods = set(strengths["method"])
    if len(methods) == 1:
        there, absent = ("TRU", "TV") if "tru" in methods else ("TV", "TRU")
        return [f"No trial of {absent} has finished, so {there} cannot be compared with it."]
    return [
        f"On {split_label(split)}, {_compare_levels(utility_at_equal_quality(points, split), rows['n'])}."
        for split, rows in strengths.groupby("split")
    ]


def _compare_levels(levels: pd.DataFrame, seeds: pd.Series) -> str:
    """Return `of 6 measured FQs that TRU and TV both reach TRU keeps more MU at 4 ...`, compared as printed."""
    if levels.empty:
        return "TRU and TV reach no FQ above the original model's in common, so neither can be said to keep more MU"
    more, less = sum(levels["tru"] > levels["tv"]), sum(levels["tru"] < levels["tv"])
    last = levels.iloc[-1]
    low, high = format_number(levels["forget_quality"].iloc[0], 2), format_number(last["forget_quality"], 2)
    best = {name: format_number(last[name]) for name in ("tru", "tv")}
    n = " to ".join(dict.fromkeys(f"{count:g}" for count in (seeds.min(), seeds.max())))
    return (
        f"of {len(levels)} measured FQs that TRU and TV both reach ({low} to {high}) TRU keeps more MU at {more}, TV "
        f"at {less}; at FQ {high}, the highest, MU is {best['tru']} for TRU and {best['tv']} for TV "
        f"(n\u00a0=\u00a0{n}{f': {ONE_SEED.lower()}' if seeds.max() < 2 else ''}, lines between measured strengths)"
    )
