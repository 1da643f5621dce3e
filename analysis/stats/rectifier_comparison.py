"""Which rectifier helps: each against none over the reported seeds that both have."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from analysis.labels import DEFAULT_TABLE_DECIMALS, order_names
from analysis.load.trials import tabulate_uwc_mixtures
from analysis.stats import significance
from analysis.stats.sweep_results import SHORT_NAMES, STUDY_KEY_COLUMNS, SweepResults
from trainables.benchmarks import Goal
from trainables.config.method_tables import RECTIFIERS

SPLIT_METHOD_COLUMNS = ["split", "method"]
TEST_FAMILY = [*SPLIT_METHOD_COLUMNS, "metric"]
"""What p values are adjusted over (Holm): all rectifiers against none on one split, objective and goal."""
ES_GOAL = Goal("forget_extraction_strength", "removal", "lowest", "ES", "extraction strength on the forget rows")
FQ_AT_PREFIX = "forget_quality_at_"
RETAIN_TERM_VARIANTS = {"ga": "gd", "npo": "npo_gd", "simnpo": "simnpo_gd"}
RETAIN_TERM_RIVAL_NAME = "retain term"
"""Beside rectifiers that add the retain gradient, an objective's form with a retain term is a fairer rival."""
DIFFERENCE_COLUMNS = [*TEST_FAMILY, "rectifier", "n", "none", "value", "difference", "low", "high", "sign"]


@dataclass(frozen=True)
class RectifierComparison:
    """`values`: as `compare_rectifiers` makes it, `goals` being columns of it; what follows from these is made once."""

    results: SweepResults
    values: pd.DataFrame
    goals: tuple[Goal, ...]

    @cached_property
    def has_several(self) -> bool:
        """Return whether there are several rectifiers beside none: only then p values are adjusted for that."""
        return len(set(self.values["rectifier"]) - {"none"}) > 1

    @property
    def deciding_goals(self) -> tuple[Goal, ...]:
        """Return the goals that decide: the benchmark's, or of several rectifiers FQ at equal utility and ES."""
        if not self.has_several:
            return self.results.goals.all_goals
        mixed = tuple(goal for goal in self.goals if goal.metric.startswith(FQ_AT_PREFIX))
        return (*mixed, *(goal for goal in self.goals if goal == ES_GOAL)) if mixed else self.goals

    @cached_property
    def differences(self) -> pd.DataFrame:
        """Return one row for each rectifier, goal, split and method: what it changes against none.

        Columns of `_compare` and of `bootstrap_paired_differences` or `paired_t_test`. adjusted: by Holm, of several
        rectifiers over TEST_FAMILY, else over all. sign: 1 better, -1 worse, 0 neither, NaN without a test.
        """
        rows = []
        groups: Any = self.values.groupby(SPLIT_METHOD_COLUMNS, sort=False)
        for (split, method), group in groups:
            study = {"split": split, "method": method}
            sides: dict[str, Any] = {str(name): side.set_index("seed") for name, side in group.groupby("rectifier")}
            plain = sides.pop("none", pd.DataFrame(columns=group.columns))
            for name in order_names(sides, RECTIFIERS):
                for goal in self.goals if self.has_several else self.deciding_goals:
                    if sides[name][goal.metric].notna().any() and plain[goal.metric].notna().any():
                        rows.append({**study, "rectifier": name, **self._compare(plain, sides[name], goal)})
        frame = pd.DataFrame(rows, columns=None if rows else DIFFERENCE_COLUMNS)
        if rows:
            family: Any = TEST_FAMILY if self.has_several else (lambda place: 0)  # of one all tests are a family
            tests = frame.groupby(family)["p"]
            frame["adjusted"] = tests.transform(significance.adjust_p_values_holm)
            goals, rows = {goal.metric: goal for goal in self.goals}, frame.to_dict("records")
            least = tests.transform("count") * 2.0 ** (1 - frame["n"])  # what Holm makes of a sign-flip test's least p
            frame["sign"] = [self._find_sign(row, goals[row["metric"]], p) for row, p in zip(rows, least, strict=True)]
        return frame

    def _find_sign(self, row: dict[Any, Any], goal: Goal, least: float) -> float:
        """Return the direction of a change; 0 where it is too small to count, or where seeds or rows leave it open.

        Rows do so where the KS distance changes by one step or less, or their interval of the utility's change holds 0.
        NaN where no test could show it: of several rectifiers, where `least`, the least adjusted p, is above ALPHA.
        """
        if self.has_several:
            clear = row["adjusted"] <= significance.ALPHA
            if math.isnan(row["p"]) or (least > significance.ALPHA and not clear):
                return math.nan
        else:
            if math.isnan(row["difference"]) or len(row["gains"]) < significance.MIN_SEEDS_FOR_DIRECTION:
                return math.nan
            low, high = row["low"], row["high"]
            if math.isnan(low):  # too few seeds for an interval: it is clear if all moved alike
                low, high = min(row["gains"]), max(row["gains"])
            clear = not low <= 0 <= high
        least = float(10**-goal.digits)  # one in the last digit that a line of progress shows
        if not clear or round(abs(row["difference"]), DEFAULT_TABLE_DECIMALS) < least:
            return 0.0
        if row.get("ks_steps", math.inf) <= 1 + 1e-6 or row.get("rows_low", 1.0) <= 0 <= row.get("rows_high", 1.0):
            return 0.0
        return 1.0 if goal.orient_value(row["difference"]) > 0 else -1.0

    def _compare(self, plain: pd.DataFrame, other: pd.DataFrame, goal: Goal) -> dict[str, Any]:
        """Return a goal without (`none`) and with a rectifier (`value`), means over the `n` seeds that both have.

        Without a seed in common the means are over all of each, without a difference. gains: the differences by seed.
        ks_steps: of FQ, by how many steps of 1/n the mean KS distance changes. rows_low, rows_high: of the goal of
        retention, the 95 % interval of the difference over the evaluation rows. below: seeds with a side's utility
        below the floor.
        """
        seeds = plain[goal.metric].dropna().index.intersection(other[goal.metric].dropna().index).sort_values()
        before, after = (plain.loc[seeds], other.loc[seeds]) if len(seeds) else (plain, other)
        row: dict[str, Any] = {"metric": goal.metric, "n": len(seeds)}
        row |= {"none": before[goal.metric].mean(), "value": after[goal.metric].mean()}
        gains = (other.loc[seeds, goal.metric] - plain.loc[seeds, goal.metric]).astype(float)
        row |= {"difference": row["value"] - row["none"] if len(seeds) else math.nan, "gains": gains.tolist()}
        if goal.metric == "forget_quality":
            columns = significance.KS_COLUMNS
            first, second = (side.loc[seeds].reindex(columns=columns).to_numpy(dtype=float) for side in (plain, other))
            rows = np.minimum(first, second)[:, 1]
            row["ks_steps"] = float(abs((second - first)[:, 0].mean()) * rows.min()) if len(rows) else math.nan
        pairs = list(zip(plain.loc[seeds, "id"], other.loc[seeds, "id"], strict=True))
        resampled = self.results.bootstrapped_utilities
        if goal == self.results.goals.retention and pairs and {key for pair in pairs for key in pair} <= set(resampled):
            changes = [resampled[after] - resampled[before] for before, after in pairs]
            row["rows_low"], row["rows_high"] = significance.percentile_interval(np.mean(changes, axis=0))
        test = significance.bootstrap_paired_differences if self.has_several else significance.paired_t_test
        row |= test(row["gains"])
        below = plain.loc[seeds, "below"] | other.loc[seeds, "below"]
        return row | {"below": 0 if goal.metric.startswith(FQ_AT_PREFIX) else int(below.sum())}

    @cached_property
    def step_seconds(self) -> pd.DataFrame:
        """Return `seconds` of a training step of each, medians over seeds; slower: how many times none's."""
        found = self.values.groupby([*SPLIT_METHOD_COLUMNS, "rectifier"], sort=False)["seconds"].median().reset_index()
        plain = found["seconds"].where(found["rectifier"] == "none")
        base = plain.groupby([found[name] for name in SPLIT_METHOD_COLUMNS]).transform("first")
        return found.assign(slower=found["seconds"] / base)


def compare_rectifiers(results: SweepResults) -> RectifierComparison:
    """Return what each rectifier of a sweep changes; task vectors have none.

    `values` has one row for each split, method, rectifier and evaluated seed. Goals are the benchmark's, extraction
    strength where it was measured, and FQ of UWC's mixture for each target, NaN where that was missed. Also `seconds`
    of a training step and `below` (the utility is below the rule's floor).
    """
    chosen = results.chosen.loc[results.chosen["strength"].isna(), [*STUDY_KEY_COLUMNS, "configuration", "original"]]
    chosen = chosen.rename(columns=SHORT_NAMES)
    adding = [name for name, row in RECTIFIERS.items() if row.adds_retain]
    rivals = set(chosen.loc[chosen["rectifier"].isin(adding), "method"])
    names = {form: name for name, form in RETAIN_TERM_VARIANTS.items() if name in rivals}
    forms = chosen.loc[chosen["method"].isin(list(names)) & (chosen["rectifier"] == "none")]
    forms = forms.assign(method=forms["method"].map(names), rectifier=RETAIN_TERM_RIVAL_NAME)
    compared = chosen.groupby(SPLIT_METHOD_COLUMNS)["rectifier"].transform("nunique") > 1
    settings = pd.concat([chosen.loc[compared], forms], ignore_index=True).reset_index(names="order")
    found = settings.merge(results.chosen_trials.drop(columns="method"), on="configuration")
    found = found.sort_values(["order", "seed"], ignore_index=True)
    goals, kept = list(results.goals.all_goals), results.goals.retention.metric
    if ES_GOAL.metric in found and ES_GOAL.metric not in {goal.metric for goal in goals}:
        goals += [ES_GOAL] * bool(found[ES_GOAL.metric].notna().any())
    mixtures: Any = tabulate_uwc_mixtures(found.drop_duplicates("id")).set_index("id")
    for share in sorted(set(mixtures["target"].dropna())):
        at = mixtures.loc[mixtures["target"] == share]
        goal = Goal(f"{FQ_AT_PREFIX}{share:g}", "removal", "highest", f"FQ at {share:.0%} MU", "FQ at equal utility", 2)
        reached = at["forget_quality"].where(at["reached"].astype(bool)).astype(float)
        found[goal.metric] = [reached.get(trial, math.nan) for trial in found["id"]]
        goals.append(goal)
    found = found.assign(
        seconds=found["seconds.training"].astype(float) / found["steps"].astype(float),
        below=found[kept] < results.rule.share * found["original"],
    )
    columns = [*SPLIT_METHOD_COLUMNS, "rectifier", "seed", "id", "seconds", "below", *significance.KS_COLUMNS]
    values = found.reindex(columns=[*columns, *(goal.metric for goal in goals)])
    return RectifierComparison(results, values, tuple(goals))
