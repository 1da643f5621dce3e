"""Which rectifier helps: each against none over the seeds that both have, and the ranks of all.

Seeds are those of `chosen_settings.is_reported`: with `selection.seeds` the ones that no setting was chosen on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet

from analysis.labels import order_rectifiers
from analysis.load.trials import evaluated
from analysis.stats import equal_utility, row_bootstrap
from analysis.stats.chosen_settings import SHORT, STUDY_COLUMNS, is_reported
from analysis.stats.significance import KS, LEAST, LEVEL, bound_by_rows, count_ks_steps, holm, resolution
from analysis.stats.sweep_results import Results
from trainables.benchmarks import Goal
from trainables.config.method_tables import RECTIFIERS
from trainables.storage.names import STEPS

OWN, EQUAL = "own best", "equal"
"""A rectifier's settings: those chosen for it; its own gamma and tau with all else as chosen without a rectifier."""
STUDY = ["basis", "split", "method"]
FAMILY = [*STUDY, "metric"]
"""What p values are adjusted over (Holm): all rectifiers against none on one split, objective, basis and goal."""
EXTRACTION = Goal("forget_extraction_strength", "removal", "lowest", "ES", "extraction strength on the forget rows")
MIXED = "forget_quality_at_"
UNMIXED = "unmixed_"
"""Beginnings of the metrics of mixtures, and of the columns that say that one is the trial's own model."""
RETAINED = {"ga": "gd", "npo": "npo_gd", "simnpo": "simnpo_gd"}
RETAIN_TERM = "retain term"
"""Objectives and their forms with a retain term, and what such a form is called beside rectifiers.

Beside rectifiers that add the retain gradient (`adds_retain`) the plain objective alone would be no fair rival."""
PEAK = "peak_memory_bytes"
RESAMPLES, FLIPS, SEED = 2000, 2**14, 0
"""Bootstrap samples; sign flips, all 2^n up to 14 seeds, else so many at random; the seed of both."""


@dataclass(frozen=True)
class Comparison:
    """`values`: of `list_values`, whose columns `goals` are; what follows from these is made once."""

    results: Results
    values: pd.DataFrame
    goals: tuple[Goal, ...]

    @property
    def ranked(self) -> tuple[Goal, ...]:
        """Return the goals that rank: FQ at equal utility and extraction strength; without mixtures all goals."""
        mixed = tuple(goal for goal in self.goals if goal.metric.startswith(MIXED))
        return (*mixed, *(goal for goal in self.goals if goal == EXTRACTION)) if mixed else self.goals

    @cached_property
    def differences(self) -> pd.DataFrame:
        """Return one row for each rectifier, goal, split, method and basis: what it changes against none.

        n: seeds in common; value, none: means over these; difference: value - none, gains: the list by seed. low, high,
        p, effect: of `measure_gains`; adjusted: p by Holm over FAMILY. ks_steps, rows_low, rows_high: as
        `significance.tests`. below: seeds at which a side's utility is below the rule's floor; unmixed: at which one
        keeps more than UWC's target by itself; lacking: seeds without a pair, with the reason. sign: 1 better, -1
        worse, 0 neither, NaN without a test.
        """
        rows = []
        for key, group in _groups(self.values):
            sides = {str(name): side.set_index("seed") for name, side in group.groupby("rectifier")}
            for name in order_rectifiers(sides.keys() - {"none"}) if "none" in sides else ():
                found = (self._compare(sides["none"], sides[name], goal) for goal in self.goals)
                rows += [{**key, "rectifier": name, **row} for row in found if row["n"] or row["lacking"]]
        frame = pd.DataFrame(rows)
        if rows:
            frame["adjusted"] = frame.groupby(FAMILY)["p"].transform(holm)
            goals = {goal.metric: goal for goal in self.goals}
            frame["sign"] = [_find_sign(row, goals[row["metric"]]) for row in frame.to_dict("records")]
        return frame

    def _compare(self, plain: pd.DataFrame, other: pd.DataFrame, goal: Goal) -> dict[str, Any]:
        metric, mixed = goal.metric, goal.metric.startswith(MIXED)
        seeds = sorted({*plain.index, *other.index})
        sides: list[Any] = [side.reindex(seeds) for side in (plain, other)]
        measured = [side[metric].notna() for side in sides]
        common: Any = measured[0] & measured[1]
        before, after = (side.loc[common] for side in sides)
        gains = (after[metric] - before[metric]).to_numpy(dtype=float)
        row = {"metric": metric, "n": len(gains), "none": before[metric].mean(), "value": after[metric].mean()}
        row |= {"difference": float(np.mean(gains)) if len(gains) else math.nan, "gains": gains.tolist()}
        row |= measure_gains(tuple(gains.tolist()))
        row["below"] = 0 if mixed else int((before["below"] | after["below"]).sum())
        row["unmixed"] = int((before[UNMIXED + metric] | after[UNMIXED + metric]).sum()) if mixed else 0
        absent = common.index[~common] if (measured[0] | measured[1]).any() else []
        row["lacking"] = ", ".join(f"{seed:g} ({_explain(seed, sides, metric)})" for seed in absent)
        if metric == "forget_quality":
            row["ks_steps"] = count_ks_steps(before, after)
        if goal == self.results.goals.retention:
            row |= bound_by_rows(before["id"], after["id"], self._resampled)
        return row

    @cached_property
    def _resampled(self) -> dict[str, row_bootstrap.Array]:
        """Return `Results.resampled` of all trials that are compared."""
        results, known = self.results, self.results.resampled
        compared = [key for key in self.values["id"] if key not in known]
        trials = results.runs.loc[results.runs["id"].isin(compared)].dropna(subset=[results.goals.retention.metric])
        store = results.store
        return known | (row_bootstrap.resample_trials(trials, store, results.rule.halves) if store else {})

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """Return one row for each rectifier, ranked goal, split, method and basis: its mean rank over seeds, 1 best.

        blocks: how many seeds all of them have; without: the rectifiers that are not ranked, for they have less than
        half as many as another.
        friedman, distance: of `measure_ranks`.
        """
        rows = []
        for key, group in _groups(self.values):
            names = order_rectifiers(group["rectifier"])
            for goal in self.ranked:
                gains: Any = goal.gain(1) * group.pivot(index="seed", columns="rectifier", values=goal.metric)
                counts = gains.count()
                measured = [name for name in names if counts[name] >= max(1, counts.max() / 2)]
                table = gains[measured].dropna()
                if table.empty or len(measured) < 2:
                    continue
                found = measure_ranks(table)
                without = ", ".join(name for name in names if name not in measured)
                row = {**key, "metric": goal.metric, "blocks": len(table), "without": without}
                row |= {name: found[name] for name in ("friedman", "distance")}
                rows += [row | {"rectifier": name, "rank": rank} for name, rank in found["ranks"].items()]
        return pd.DataFrame(rows)

    @cached_property
    def costs(self) -> pd.DataFrame:
        """Return `seconds` of a training step and `memory` of each rectifier, split and method; medians over seeds.

        slower: how many times as long as without a rectifier. memory: the peak in bytes, of trials on a GPU alone:
        elsewhere it is that of a process that may have run other trials before.
        """
        kept = ["split", "method", "rectifier"]
        own = self.values.loc[self.values["basis"] == OWN]
        own = own.assign(memory=[self._read_peak(*row) for row in zip(own["id"], own["device"], strict=True)])
        found = own.groupby(kept, sort=False)[["seconds", "memory"]].median().reset_index()
        plain = found.loc[found["rectifier"] == "none"].set_index(kept[:2])["seconds"].to_dict()
        base = [plain.get((row["split"], row["method"]), math.nan) for row in found.to_dict("records")]
        return found.assign(slower=found["seconds"] / base)

    def _read_peak(self, trial: str, device: Any) -> float:
        """Return the peak of a trial's memory in bytes, NaN on a CPU and where its steps are not there."""
        store = self.results.store
        if store is None or not isinstance(device, str) or device == "cpu":
            return math.nan
        try:
            store.fetch(path := store.trial(trial) / STEPS)
            column = pyarrow.parquet.read_table(path, columns=[PEAK])[PEAK]
            return float(max(column.to_pylist(), default=math.nan))
        except (OSError, pyarrow.ArrowException):  # figures along training warn of such a file
            return math.nan


def compare(results: Results) -> Comparison:
    """Return what each rectifier of a sweep changes; task vectors have none."""
    return Comparison(results, *list_values(results))


def list_values(results: Results) -> tuple[pd.DataFrame, tuple[Goal, ...]]:
    """Return one row for each basis, split, method, rectifier and reported seed, and the goals that are its columns.

    Goals are the benchmark's, extraction strength where it was measured, and FQ of UWC's mixture for each target, which
    is NaN where the target was missed. Also id, status, device, `seconds` (of a training step), `below` (the utility
    is below the floor of the selection rule) and UNMIXED (keeps more than the target without mixing).
    """
    runs = results.runs.loc[is_reported(results.runs, results.rule)].drop(columns="method")
    found = _find_settings(results).reset_index(names="order").merge(runs, on="configuration")
    found = found.sort_values(["order", "seed"], ignore_index=True)
    goals, kept = list(results.goals.compared), results.goals.retention.metric
    if EXTRACTION.metric in found and EXTRACTION.metric not in {goal.metric for goal in goals}:
        goals += [EXTRACTION] * bool(found[EXTRACTION.metric].notna().any())
    found.loc[~evaluated(found), [goal.metric for goal in goals]] = math.nan
    mixtures: Any = equal_utility.targets(found.drop_duplicates("id")).set_index("id")
    for share in sorted(set(mixtures["target"].dropna())):
        at = mixtures.loc[mixtures["target"] == share]
        goal = Goal(f"{MIXED}{share:g}", "removal", "highest", f"FQ at {share:.0%} MU", "FQ at equal utility", 2)
        reached = at["forget_quality"].where(at["reached"].astype(bool)).astype(float)
        found[goal.metric] = [reached.get(trial, math.nan) for trial in found["id"]]
        found[UNMIXED + goal.metric] = found["id"].isin(list(at.index[at["unmixed"].astype(bool)]))
        goals.append(goal)
    models = results.models.loc[results.models["role"] == "original"]
    original = dict(zip(models["split"], models[kept].astype(float), strict=True))
    floor = np.array([results.rule.share * original.get(split, math.nan) for split in found["split"]])
    found = found.assign(
        seconds=found["seconds.training"].astype(float) / found["steps"].astype(float),
        below=found[kept].to_numpy() < floor,
    )
    columns = [*STUDY, "rectifier", "seed", "id", "status", "topology.device", "seconds", "below", *KS]
    columns += [goal.metric for goal in goals] + [name for name in found if str(name).startswith(UNMIXED)]
    return found.reindex(columns=columns).rename(columns={"topology.device": "device"}), tuple(goals)


def _find_settings(results: Results) -> pd.DataFrame:
    """Return basis, split, method, rectifier and configuration of the chosen settings of objectives.

    With EQUAL: all settings but the rectifier's own as chosen without one. There is no such basis where the chosen
    settings are alike in these. Beside rectifiers that add the retain gradient, a method's form with a retain term is
    one more.
    """
    chosen = results.chosen.loc[results.chosen["strength"].isna(), [*STUDY_COLUMNS, "configuration"]]
    chosen = chosen.rename(columns=SHORT).assign(basis=OWN)
    adding = [name for name, row in RECTIFIERS.items() if row.adds_retain]
    rivals = set(chosen.loc[chosen["rectifier"].isin(adding), "method"])
    names = {form: name for name, form in RETAINED.items() if name in rivals}
    forms = chosen.loc[chosen["method"].isin(list(names)) & (chosen["rectifier"] == "none")]
    forms = forms.assign(method=forms["method"].map(names), rectifier=RETAIN_TERM)
    compared = chosen.groupby(["split", "method"])["rectifier"].transform("nunique") > 1
    rows = pd.concat([chosen.loc[compared], forms]).to_dict("records")
    plain = {(row["split"], row["method"]): row["configuration"] for row in rows if row["rectifier"] == "none"}
    equal = []
    for row in rows:
        own = json.loads(row["configuration"])
        other = json.loads(plain.get((row["split"], row["method"]), row["configuration"]))
        other |= {name: own[name] for name in ("method", "rectifier")}
        equal.append(row | {"basis": EQUAL, "configuration": json.dumps(other, sort_keys=True)})
    same = all(one["configuration"] == other["configuration"] for one, other in zip(rows, equal, strict=True))
    columns = [*STUDY, "rectifier", "configuration"]
    return pd.DataFrame(rows if same else [*rows, *equal], columns=columns)


@lru_cache(maxsize=4096)
def measure_gains(differences: tuple[float, ...]) -> Mapping[str, float]:
    """Return `low`, `high`, `p` and `effect` of paired differences, NaN below LEAST of them.

    low, high: 95 % BCa bootstrap interval of the mean over seeds (Efron, 1987), somewhat narrow for ten. p: exact
    two-sided sign-flip permutation test of the mean (Fisher, 1935), at least 2 / 2^n. effect: Cohen's d_z, the mean
    over the standard deviation, NaN where all are equal.
    """
    gains = np.array(differences, dtype=float)
    if len(gains) < LEAST:
        return dict.fromkeys(("low", "high", "p", "effect"), math.nan)
    from scipy import stats

    shared: dict[str, Any] = {"vectorized": True, "rng": SEED}
    tested = stats.permutation_test((gains,), np.mean, permutation_type="samples", n_resamples=FLIPS, **shared)
    mean = float(gains.mean())
    if np.ptp(gains) <= 1e-12 * np.abs(gains).max():
        return {"low": mean, "high": mean, "p": float(tested.pvalue), "effect": math.nan}
    ends = stats.bootstrap((gains,), np.mean, n_resamples=RESAMPLES, confidence_level=1 - LEVEL, **shared)
    low, high = map(float, ends.confidence_interval)
    return {"low": low, "high": high, "p": float(tested.pvalue), "effect": mean / float(gains.std(ddof=1))}


def measure_ranks(table: pd.DataFrame) -> dict[str, Any]:
    """Return of a table's columns `ranks` (means over the rows, 1 the largest, ties averaged), `friedman`, `distance`.

    friedman: p of Friedman's test that all columns rank alike. distance: Nemenyi's critical difference of two mean
    ranks, q sqrt(k (k + 1) / 6 N) for N rows and k columns, q the quantile of the studentized range over sqrt(2):
    Demsar (2006), Statistical Comparisons of Classifiers over Multiple Data Sets, section 3.2.2. NaN below LEAST rows.
    """
    rows, columns = table.shape
    ranks = table.rank(axis=1, ascending=False)
    found: dict[str, Any] = {"ranks": ranks.mean().to_dict(), "friedman": math.nan, "distance": math.nan}
    if rows >= LEAST:
        from scipy import stats

        quantile = float(stats.studentized_range.ppf(1 - LEVEL, columns, np.inf)) / math.sqrt(2)
        found["distance"] = quantile * math.sqrt(columns * (columns + 1) / (6 * rows))
        if columns > 2 and np.ptp(ranks.to_numpy()) > 0:
            found["friedman"] = float(stats.friedmanchisquare(*table.to_numpy().T).pvalue)
    return found


def count_least_seeds(rectifiers: int) -> int:
    """Return from how many seeds on one of so many rectifiers can be significant: where m 2 / 2^n <= LEVEL."""
    return max(LEAST, math.ceil(1 + math.log2(rectifiers / LEVEL)))


def _groups(values: pd.DataFrame) -> list[tuple[dict[str, str], pd.DataFrame]]:
    return [
        (dict(zip(STUDY, map(str, key), strict=True)), group)  # type: ignore[arg-type]
        for key, group in values.groupby(STUDY, sort=False)
    ]


def _find_sign(row: dict[Any, Any], goal: Goal) -> float:
    if math.isnan(row["p"]):
        return math.nan
    if row["adjusted"] > LEVEL or abs(row["difference"]) < resolution(goal):
        return 0.0
    if row.get("ks_steps", math.nan) <= 1 + 1e-6 or row.get("rows_low", 1.0) <= 0 <= row.get("rows_high", 1.0):
        return 0.0
    return 1.0 if goal.gain(row["difference"]) > 0 else -1.0


def _explain(seed: float, sides: list[Any], metric: str) -> str:
    """Return why a seed has no pair: what became of its trial on each side that lacks the metric."""
    reasons = []
    for name, side in zip(("none", "with it"), sides, strict=True):
        if pd.isna(side.loc[seed, metric]):
            status = side.loc[seed, "status"]
            missed = metric.startswith(MIXED) and status == "finished"
            reasons.append(f"{name}: {'target missed' if missed else 'not run' if pd.isna(status) else status}")
    return "; ".join(reasons)
