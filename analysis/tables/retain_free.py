"""The paper's Table 1: what can be done without retain data, task vectors beside the objectives that need none."""

from __future__ import annotations

import pandas as pd

from analysis.load.goals import TOFU
from analysis.stats.selection import DEFAULT, STUDY, choose
from analysis.tables.format import BOLD, DASH, Cell, Row, Table, cells, number
from analysis.tables.main import LEVELS, METRICS, REFERENCES, main_table, row_label
from trainables.config.settings import Selection

METHODS = ("tv", "ga", "wga", "npo", "tru")
"""The methods of the paper's table, in its order: none of them reads the retain set."""
COLUMNS = ("FQ ↑", "MU ↑", "n", "strength", "change")
NOTES = (
    f"Methods without retain data and without a rectifier; means over n seeds. {BOLD['column']} strength: stg of TRU, "
    "strength of TV, the best of each method by the report's rule. "
    "change: ‖θ - θ_org‖ / ‖θ_org‖, how far the weights moved.",
)


def trials(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the trials of `METHODS` that have no rectifier; WGA's only where it is set up without its retain term.

    Of WGA's presets `open-unlearning` has a retain term; a stated `retain_coefficient` overrules the preset.
    """
    objective = runs.reindex(columns=["objective.preset", "objective.retain_coefficient"])
    preset = (objective["objective.preset"] == "open-unlearning").astype(float)
    retains = (runs["method"] == "wga") & objective["objective.retain_coefficient"].astype(float).fillna(preset).gt(0)
    return runs.loc[runs["method"].isin(METHODS) & (runs["rectifier.name"] == "none") & ~retains]


def table(runs: pd.DataFrame, references: pd.DataFrame, rule: Selection = DEFAULT) -> pd.DataFrame:
    """Return `tables.main_table` of these trials in the paper's order of rows, a method's where the sweep holds it.

    Further columns: (split, strength, chosen) and (split, relative_change, mean), NaN where there is none.
    """
    able = trials(runs)
    frame = main_table(able, references, rule)
    rows = [(role, "") for role in REFERENCES] + [(method, "none") for method in METHODS]
    frame = frame.loc[[row for row in rows if row in frame.index]]
    chosen = choose(able, references, rule).set_index(STUDY)
    for split in frame.columns.get_level_values("split").unique():
        studies = chosen.reindex([(split, method, rectifier) for method, rectifier in frame.index])
        frame[split, "strength", "chosen"] = studies["strength"].to_numpy()
        frame[split, "relative_change", "mean"] = studies["relative_change"].to_numpy()
    ordered = sorted(frame.columns, key=lambda column: column[:2])
    return frame[ordered].set_axis(pd.MultiIndex.from_tuples(ordered, names=LEVELS), axis=1)


def printed(frame: pd.DataFrame) -> Table:
    """Return `table` as printed: the methods of a column compete, the reference models stand apart."""
    splits = tuple(frame.columns.get_level_values("split").unique())
    methods = frame.loc[[method not in REFERENCES for method, _ in frame.index]]
    best = {
        (split, column.metric): cells(methods.loc[:, (split, column.metric)], column.best, column.floor)
        for split in splits
        for column in TOFU.columns
    }
    rows = []
    for place, (method, rectifier) in enumerate(frame.index):
        rank = place - (len(frame) - len(methods))
        line: list[Cell] = []
        for split in splits:
            values = {name[1:]: value for name, value in frame.iloc[place].items() if name[0] == split}
            if rank < 0:
                line += [Cell(number(values[metric, "mean"])) for metric in METRICS] + [Cell(DASH)] * 3
            else:
                line += [best[split, metric][rank] for metric in METRICS] + _beside(values)
        rows.append(Row(row_label(method, rectifier), place == 0 or rank == 0, False, tuple(line)))
    return Table(splits, COLUMNS, tuple(rows), NOTES)


def _beside(values: dict[tuple[str, str], float]) -> list[Cell]:
    """Return n, the chosen strength and the relative change of one method and split."""
    strength, change = values["strength", "chosen"], values["relative_change", "mean"]
    return [
        Cell(f"{values['model_utility', 'n']:g}"),
        Cell(DASH if pd.isna(strength) else f"{strength:g}"),
        Cell(DASH if pd.isna(change) else f"{change:.2%}"),
    ]
