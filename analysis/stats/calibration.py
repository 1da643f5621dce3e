"""UWC's table: forget quality where every method is mixed with the original model until it keeps the same utility.

theta(w) = w theta_u + (1 - w) theta_org; a target is a share of the original model's MU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.runs import evaluated
from analysis.stats.selection import DEFAULT, STUDY, choose, in_order
from analysis.tables.format import Cell, Row, Table, cells, number
from analysis.tables.main import LEVELS, METRICS, REFERENCES, WITH, reference, row_label
from trainables.config.settings import Selection

ORIGINAL = next(iter(REFERENCES))
TARGETS = ["id", "target", "goal", "weight", "model_utility", "forget_quality", "reached", "monotone"]
CURVE = ["id", "weight", "model_utility", "forget_quality"]
MISSED, BENT, UNMIXED = "†", "‡", "§"
RULE = (
    "UWC mixes an unlearned model with the original one, w of the former and 1 - w of the latter, until MU is the "
    "given share of the original's; w is in the CSV. The settings are those of the main table, with and without GRU: "
    "chosen there by the uncalibrated FQ and MU. Bold: the better FQ of a pair, as printed."
)
NOTES = {
    MISSED: "target not reached within the tolerance by every seed: the closest mixture is shown.",
    BENT: "MU is not monotone in w for every seed: of several mixtures at the target the largest w was taken.",
    UNMIXED: "more than the target is kept without any mixing (w = 1) by one seed or more: this pair is not compared "
    "at equal MU.",
}


def targets(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row a calibrated trial and target, its `id` first."""
    rows = [
        {"id": trial, "monotone": found["monotone"], **target}
        for trial, found in _found(runs)
        for target in found["targets"]
    ]
    return pd.DataFrame(rows).reindex(columns=TARGETS)


def curve(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row a calibrated trial and mixture that was evaluated, by rising w (0: original model)."""
    rows = [{"id": trial, **point} for trial, found in _found(runs) for point in found["evaluations"]]
    return pd.DataFrame(rows).reindex(columns=CURVE).sort_values(["id", "weight"], ignore_index=True)


def _found(runs: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    finished = runs.loc[evaluated(runs)]
    return [
        (trial, found) for trial, found in zip(finished["id"], finished["calibrated"], strict=True) if found is not None
    ]


def chosen_trials(runs: pd.DataFrame, references: pd.DataFrame, rule: Selection = DEFAULT) -> pd.DataFrame:
    """Return the calibrated trials, a row a seed, of the settings that the main table shows."""
    chosen = choose(runs, references, rule)["configuration"]
    calibrated = runs["calibrated"].notna() & evaluated(runs)
    return runs.loc[calibrated & runs["configuration"].isin(chosen)]


def table(runs: pd.DataFrame, references: pd.DataFrame, rule: Selection = DEFAULT) -> pd.DataFrame:
    """Return UWC's outcome, unrounded: means over the seeds of the chosen settings.

    Rows: (original, "", NaN), then by method and target (method, rectifier, target), plain before `w/ GRU`.
    Columns: split, metric (forget_quality, model_utility, weight), stat (mean, sd, n), and of `seeds` the counts
    (reached, monotone, unmixed). NaN where there is no result.
    """
    trials = chosen_trials(runs, references, rule)
    found = targets(trials).merge(trials[["id", *STUDY]], on="id")
    groups = dict(list(found.groupby([*STUDY, "target"])))
    splits = sorted({*found[STUDY[0]], *references["split"]})
    models = references.set_index(["split", "role"])
    stats = list(_stats(found.head(0)))
    records: list[dict[tuple[str, ...], float]] = [{}]
    for split in splits:
        for metric in METRICS:
            values = reference(models, split, ORIGINAL, metric)
            records[0] |= {(split, metric, stat): value for stat, value in values.items()}
    rows = _rows(found)
    for row in rows:
        seeds = {split: groups.get((split, *row), found.head(0)) for split in splits}
        records.append({(split, *name): value for split in splits for name, value in _stats(seeds[split]).items()})
    index = pd.MultiIndex.from_tuples([(ORIGINAL, "", float("nan")), *rows], names=["method", "rectifier", "target"])
    columns = pd.MultiIndex.from_tuples([(split, *name) for split in splits for name in stats], names=LEVELS)
    return pd.DataFrame(records, index=index, columns=columns, dtype=float)


def _rows(found: pd.DataFrame) -> list[tuple[str, str, float]]:
    """Return (method, rectifier, target) in the paper's order: methods, of each the targets, of each the rectifiers."""
    studies = in_order(found[STUDY].assign(**{STUDY[0]: ""}).drop_duplicates())
    order = list(zip(studies["method"], studies["rectifier.name"], strict=True))
    methods = list(studies["method"])
    there = set(zip(found["method"], found["rectifier.name"], found["target"], strict=True))
    return sorted(there, key=lambda row: (methods.index(row[0]), row[2], order.index(row[:2])))


def _stats(seeds: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return mean, sd (n - 1) and n of what was found, and of how many seeds what was found is sound."""
    stats: dict[tuple[str, str], float] = {}
    for metric in (*METRICS, "weight"):
        values = seeds[metric].astype(float).agg(["mean", "std", "count"]).tolist()
        stats |= {(metric, name): value for name, value in zip(("mean", "sd", "n"), values, strict=True)}
    more = (seeds["weight"] == 1) & (seeds["model_utility"] > seeds["goal"])
    sound = {"reached": seeds["reached"], "monotone": seeds["monotone"], "unmixed": more}
    counts = {("seeds", name): float(sum(values)) for name, values in sound.items()}
    return dict(sorted((stats | counts).items(), key=lambda item: item[0][0]))


def printed(frame: pd.DataFrame) -> Table:
    """Return `table` in the layout of the paper's `tab:uwc_phi_ga`: the better FQ of a method's pair of rows is bold.

    Marks stand at the FQ and are explained in notes; every sign that is used has its note.
    """
    splits = tuple(dict.fromkeys(frame.columns.get_level_values("split")))
    rows = []
    for _, group in frame.groupby(level=["method", "target"], sort=False, dropna=False):
        quality = {split: cells(group.loc[:, (split, "forget_quality")]) for split in splits}
        for place, (method, rectifier, target) in enumerate(group.index):
            line: list[Cell] = []
            for split in splits:
                values = {name[1:]: value for name, value in group.iloc[place].items() if name[0] == split}
                utility, sd = values["model_utility", "mean"], values["model_utility", "sd"]
                marks = _marks(values) if method != ORIGINAL else ""
                line += [
                    replace(quality[split][place], marks=marks),
                    Cell(number(utility), "" if pd.isna(sd) else number(sd)),
                ]
            share = "" if method == ORIGINAL else f" ({target:.0%})"
            label = row_label(method, rectifier) + share
            rows.append(Row(label, place == 0, rectifier in WITH, tuple(line)))
    used = "".join(cell.marks for row in rows for cell in row.cells)
    notes = [f"{sign} {note}" for sign, note in NOTES.items() if sign in used]
    return Table(splits, tuple(f"{label} ↑" for label in METRICS.values()), tuple(rows), (*notes, RULE))


def _marks(values: dict[tuple[str, str], float]) -> str:
    seeds = values["weight", "n"]
    if not seeds:
        return ""
    signs = {MISSED: values["seeds", "reached"] < seeds, BENT: values["seeds", "monotone"] < seeds}
    signs[UNMIXED] = values["seeds", "unmixed"] > 0
    return "".join(sign for sign, holds in signs.items() if holds)
