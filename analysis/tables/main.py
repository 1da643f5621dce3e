"""The paper's main table, a row a method and a row `w/ GRU` under it: one numeric frame and thin renderers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from analysis.load import goals
from analysis.load.goals import TOFU, Goals
from analysis.stats.selection import DEFAULT, STUDY, choose, in_order, varied
from analysis.tables.format import DASH, Row, Table, cells
from trainables.config.methods import METHODS, RECTIFIERS
from trainables.config.settings import Selection

METRICS = {column.metric: column.label for column in TOFU.columns}
"""TOFU's, of the tables and figures that only TOFU has."""
REFERENCES = {"original": "Original", "retain": "Retrain"}
WITH = {name: f"w/ {row.label}" for name, row in RECTIFIERS.items() if name != "none"}
TASK_VECTORS = tuple(sorted(name for name, row in METHODS.items() if row.strength))
"""Methods that move the original model along a direction, as far as a strength says: stg of TRU, strength of TV."""
LEVELS = ["split", "metric", "stat"]


def method_label(method: str) -> str:
    """Return a method's name as the paper prints it."""
    return METHODS[method].label if method in METHODS else method


def row_label(method: str, rectifier: str) -> str:
    """Return the first cell of a row: Original, Retrain, a method's name, or what it is combined with."""
    return REFERENCES.get(method) or WITH.get(rectifier) or method_label(method)


def main_table(runs: pd.DataFrame, references: pd.DataFrame, rule: Selection = DEFAULT) -> pd.DataFrame:
    """Return means over seeds of the chosen trials, unrounded.

    Rows: (original, ""), where the benchmark has one (retain, ""), then (method, none) for every method of the sweep
    and under it (method, gru) or (method, clip) where the sweep holds such trials, finished or not.
    Columns: split, metric (of the benchmark: FQ and MU on TOFU), stat (mean, sd, n). NaN where there is no result.
    """
    what = goals.of(runs)
    chosen = choose(runs, references, rule).set_index(STUDY)
    present = in_order(runs.loc[:, STUDY].dropna().drop_duplicates())
    splits = sorted({*present["benchmark.split"], *references["split"]})
    roles = [role for role in REFERENCES if role == "original" or what.has_retain_model(splits)]
    rows = [(role, "") for role in roles] + _pairs_of(present)
    models = references.set_index(["split", "role"])
    records = []
    for method, rectifier in rows:
        record: dict[tuple[str, str, str], float] = {}
        for split in splits:
            for metric in what.metrics:
                if method in REFERENCES:
                    stats = reference(models, split, method, metric)
                else:
                    stats = _study(chosen, (split, method, rectifier), metric)
                record |= {(split, metric, stat): value for stat, value in stats.items()}
        records.append(record)
    index = pd.MultiIndex.from_tuples(rows, names=["method", "rectifier"])
    columns = pd.MultiIndex.from_product([splits, what.metrics, ["mean", "sd", "n"]], names=LEVELS)
    return pd.DataFrame(records, index=index, columns=columns, dtype=float)


def _pairs_of(studies: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (method, rectifier) of all rows in the paper's order, the plain method always among them."""
    plain = studies.assign(**{"rectifier.name": "none"})
    pairs = in_order(pd.concat([plain, studies]).assign(**{"benchmark.split": ""}).drop_duplicates())
    return list(zip(pairs["method"], pairs["rectifier.name"], strict=True))


def reference(models: pd.DataFrame, split: str, role: str, metric: str) -> dict[str, float]:
    """Return mean, sd and n of a reference model, from the references indexed by split and role."""
    value = models.at[(split, role), metric] if (split, role) in models.index else float("nan")
    return {"mean": value, "sd": float("nan"), "n": float(pd.notna(value))}


def _study(chosen: pd.DataFrame, study: tuple[str, str, str], metric: str) -> dict[str, float]:
    if study not in chosen.index:
        return {"mean": float("nan"), "sd": float("nan"), "n": 0.0}
    row = chosen.loc[study]
    return {"mean": row[metric], "sd": row[f"{metric}_sd"], "n": row[f"{metric}_n"]}


def printed(table: pd.DataFrame, what: Goals, notes: tuple[str, ...] = ()) -> Table:
    """Return `main_table` as printed; the best of a method's rows is bold in each column, compared as printed."""
    splits = tuple(dict.fromkeys(table.columns.get_level_values("split")))
    pairs = [(split, column) for split in splits for column in what.columns]
    rows = []
    for method, group in table.groupby(level="method", sort=False):
        columns = [cells(_under(group, split, shown.metric), shown.best, shown.floor) for split, shown in pairs]
        first = method not in REFERENCES or method == next(iter(REFERENCES))
        for place, (_, rectifier) in enumerate(group.index):
            row = tuple(column[place] for column in columns)
            rows.append(Row(row_label(str(method), rectifier), first and place == 0, rectifier in WITH, row))
    return Table(splits, tuple(column.head for column in what.columns), tuple(rows), notes)


def _under(table: pd.DataFrame, split: str, metric: str) -> pd.DataFrame:
    """Return the stats of one column; level by level, because metrics stand in the benchmark's order, not sorted."""
    return table.xs(split, axis="columns").xs(metric, axis="columns")


def to_csv(table: pd.DataFrame) -> str:
    """Return the numbers unrounded, a row a method and rectifier, columns `SPLIT.METRIC.STAT`."""
    flat = table.set_axis([".".join(column) for column in table.columns], axis=1)
    labels = [row_label(method, rectifier) for method, rectifier, *_ in table.index]
    flat.insert(0, "label", labels)
    return flat.reset_index().to_csv(index=False, lineterminator="\n")


def chosen_settings(runs: pd.DataFrame, references: pd.DataFrame, rule: Selection = DEFAULT) -> pd.DataFrame:
    """Return, as texts, what each row of the main table was run with and picked from."""
    other, vectors, what = varied(runs), task_vectors(runs), goals.of(runs)
    keeps = f"Keeps {rule.share:.0%} of {what.retention.short}"
    members = runs.drop_duplicates("configuration").set_index("configuration")
    rows = []
    for row in choose(runs, references, rule).to_dict("records"):
        member = members.loc[row["configuration"]]
        rows.append(
            {
                "Split": row["benchmark.split"],
                **described(row["method"], row["rectifier.name"], row["gamma"], row["tau"], row["strength"]),
                **{column: str(member[column]) for column in other},
                "Seeds": row["seeds"],
                "n of planned": f"{row['n']} of {row['planned']}",
                "Chosen from": f"{row['settings']}",
                keeps: _kept(row, what.y.column),
                "chosen_step": row["chosen_step"] or DASH,
                "Trial": row["id"],
            }
        )
    settings = ["gamma", "tau", *["strength"] * vectors, *other]
    steps = ["chosen_step"] * any(row["chosen_step"] != DASH for row in rows)
    columns = ["Split", "Method", *settings, *steps, "Seeds", "n of planned", "Chosen from", keeps, "Trial"]
    return pd.DataFrame(rows, columns=columns, dtype="str")


def _kept(row: dict[Hashable, Any], utility: str) -> str:
    """Return whether the bar of the choice was met, and the share that is kept on the rows that are reported."""
    if not (row["bar"] > 0 and row["original"] > 0):
        return DASH
    return f"{'yes' if row['kept'] else 'no'} ({row[utility] / row['original']:.1%})"


def task_vectors(runs: pd.DataFrame) -> bool:
    """Return whether a trial of the sweep moves along a task vector, and so has a strength."""
    return bool(runs["method"].isin(TASK_VECTORS).any())


def described(method: str, rectifier: str, gamma: float, tau: float, strength: float) -> dict[str, str]:
    """Return a trial's Method, gamma, tau and strength as texts: `none` where set so, a dash where not its setting."""
    return {
        "Method": " ".join(filter(None, [method_label(method), WITH.get(rectifier)])),
        "gamma": setting_text(gamma) if takes(rectifier, "gamma") else DASH,
        "tau": setting_text(tau) if takes(rectifier, "tau") else DASH,
        "strength": setting_text(strength) if method in TASK_VECTORS else DASH,
    }


def takes(rectifier: str, setting: str) -> bool:
    """Return whether gamma or tau is a setting of a rectifier."""
    return rectifier in RECTIFIERS and setting in RECTIFIERS[rectifier].takes


def setting_text(value: float) -> str:
    """Return a value of gamma, tau or strength as tables and tidy frames spell it."""
    return "none" if pd.isna(value) else f"{value:g}"
