"""The paper's main table, a row a method and a row `w/ GRU` under it: one numeric frame and thin renderers."""

from __future__ import annotations

import html
import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.selection import DECIMALS, SHARE, STUDY, choose, in_order, varied
from trainables.config import METHOD_LABELS

METRICS = {"forget_quality": "FQ", "model_utility": "MU"}
REFERENCES = {"original": "Original", "retain": "Retrain"}
WITH = {"clip": "w/ clip", "pcgrad": "w/ PCGrad", "gru": "w/ GRU"}
DASH = "—"
KEEPS = f"Keeps {SHARE:.0%} of MU"
TEX = str.maketrans({"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "±": r"$\pm$", "↑": r"$\uparrow$", "—": "--"})


@dataclass(frozen=True)
class Cell:
    """A printed number; `sd` is empty with fewer than two seeds."""

    text: str
    sd: str = ""
    bold: bool = False


@dataclass(frozen=True)
class Row:
    """A printed row; `first` opens a new group (a rule above it), `under` is a method's row with GRU or clipping."""

    label: str
    first: bool
    under: bool
    cells: tuple[Cell, ...]


def method_label(method: str) -> str:
    """Return a method's name as the paper prints it."""
    return METHOD_LABELS.get(method, method)


def row_label(method: str, rectifier: str) -> str:
    """Return the first cell of a row: Original, Retrain, a method's name, or what it is combined with."""
    return REFERENCES.get(method) or WITH.get(rectifier) or method_label(method)


def split_label(split: str) -> str:
    """Return `forget05 (5%)` for TOFU's splits, other names as they are."""
    match = re.fullmatch(r"forget(\d\d)", split)
    return f"{split} ({int(match[1])}%)" if match else split


def number(value: float, decimals: int = DECIMALS) -> str:
    """Return a number at printed precision, without the sign of a rounded zero; a dash for NaN."""
    return DASH if pd.isna(value) else f"{round(value, decimals) + 0.0:.{decimals}f}"


def main_table(runs: pd.DataFrame, references: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds of the chosen trials, unrounded.

    Rows: (original, ""), (retain, ""), then (method, none) for every method of the sweep and under it (method, gru) or
    (method, clip) where the sweep holds such trials, finished or not.
    Columns: split, metric (forget_quality, model_utility), stat (mean, sd, n). NaN where there is no result.
    """
    chosen = choose(runs, references).set_index(STUDY)
    present = in_order(runs.loc[:, STUDY].dropna().drop_duplicates())
    splits = sorted({*present["benchmark.split"], *references["split"]})
    rows = [(role, "") for role in REFERENCES] + _pairs_of(present)
    models = references.set_index(["split", "role"])
    records = []
    for method, rectifier in rows:
        record: dict[tuple[str, str, str], float] = {}
        for split in splits:
            for metric in METRICS:
                if method in REFERENCES:
                    stats = _reference(models, split, method, metric)
                else:
                    stats = _study(chosen, (split, method, rectifier), metric)
                record |= {(split, metric, stat): value for stat, value in stats.items()}
        records.append(record)
    index = pd.MultiIndex.from_tuples(rows, names=["method", "rectifier"])
    columns = pd.MultiIndex.from_product(
        [splits, list(METRICS), ["mean", "sd", "n"]], names=["split", "metric", "stat"]
    )
    return pd.DataFrame(records, index=index, columns=columns, dtype=float)


def _pairs_of(studies: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (method, rectifier) of all rows in the paper's order, the plain method always among them."""
    plain = studies.assign(**{"rectifier.name": "none"})
    pairs = in_order(pd.concat([plain, studies]).assign(**{"benchmark.split": ""}).drop_duplicates())
    return list(zip(pairs["method"], pairs["rectifier.name"], strict=True))


def _reference(models: pd.DataFrame, split: str, role: str, metric: str) -> dict[str, float]:
    value = models.at[(split, role), metric] if (split, role) in models.index else float("nan")
    return {"mean": value, "sd": float("nan"), "n": float(pd.notna(value))}


def _study(chosen: pd.DataFrame, study: tuple[str, str, str], metric: str) -> dict[str, float]:
    if study not in chosen.index:
        return {"mean": float("nan"), "sd": float("nan"), "n": 0.0}
    row = chosen.loc[study]
    return {"mean": row[metric], "sd": row[f"{metric}_sd"], "n": row[f"{metric}_n"]}


def print_rows(table: pd.DataFrame) -> list[Row]:
    """Return the table as printed; the best of a method's rows is bold in each column, compared as printed."""
    rows = []
    for method, group in table.groupby(level="method", sort=False):
        columns = [_cells(group.loc[:, (split, metric)]) for split, metric in _pairs(table)]
        first = method not in REFERENCES or method == next(iter(REFERENCES))
        for place, (_, rectifier) in enumerate(group.index):
            cells = tuple(column[place] for column in columns)
            rows.append(Row(row_label(str(method), rectifier), first and place == 0, rectifier in WITH, cells))
    return rows


def _pairs(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (split, metric) of the printed columns, left to right."""
    return list(dict.fromkeys((split, metric) for split, metric, _ in table.columns))


def _cells(column: pd.DataFrame) -> list[Cell]:
    """Return the printed cells of one method's rows in one column (stats: mean, sd, n)."""
    texts = [number(value) for value in column["mean"]]
    values = [float(text) for text in texts if text != DASH]
    best = number(max(values)) if len(values) > 1 else ""
    return [
        Cell(text, "" if pd.isna(sd) else number(sd), text == best)
        for text, sd in zip(texts, column["sd"], strict=True)
    ]


def to_csv(table: pd.DataFrame) -> str:
    """Return the numbers unrounded, a row a method and rectifier, columns `SPLIT.METRIC.STAT`."""
    flat = table.set_axis([".".join(column) for column in table.columns], axis=1)
    labels = [row_label(method, rectifier) for method, rectifier in table.index]
    flat.insert(0, "label", labels)
    return flat.reset_index().to_csv(index=False, lineterminator="\n")


def to_markdown(table: pd.DataFrame) -> str:
    """Return a pipe table."""
    header = ["Method", *(f"{split} {METRICS[metric]} ↑" for split, metric in _pairs(table))]
    rows = [[row.label, *map(_markdown, row.cells)] for row in print_rows(table)]
    return pipe_table(pd.DataFrame(rows, columns=header))


def _markdown(cell: Cell) -> str:
    return (f"**{cell.text}**" if cell.bold else cell.text) + (f" ± {cell.sd}" if cell.sd else "")


def pipe_table(frame: pd.DataFrame) -> str:
    """Return a frame of texts as a Markdown table."""
    align = ["left"] + ["right"] * (frame.shape[1] - 1)
    return frame.to_markdown(index=False, disable_numparse=True, colalign=align if len(frame) else None) + "\n"


def to_latex(table: pd.DataFrame) -> str:
    """Return a booktabs tabular in the layout of the paper's Table `tofu_gru_complete`."""
    splits = list(dict.fromkeys(split for split, _ in _pairs(table)))
    width = len(METRICS)
    starts = [2 + width * place for place in range(len(splits))]
    heads = [rf"\multicolumn{{{width}}}{{c}}{{{split_label(split)}}}" for split in splits]
    rules = "".join(rf"\cmidrule(lr){{{start}-{start + width - 1}}}" for start in starts)
    names = [f"{label} ↑" for _ in splits for label in METRICS.values()]
    lines = [r"% needs \usepackage{booktabs}", rf"\begin{{tabular}}{{l{'r' * width * len(splits)}}}", r"\toprule"]
    lines += [_tex(["", *heads]), rules, _tex(["Method", *names])]
    for row in print_rows(table):
        lines += [r"\midrule"] * row.first
        lines.append(_tex([rf"\quad {row.label}" if row.under else row.label, *map(_latex, row.cells)]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _tex(cells: list[str]) -> str:
    return " & ".join(cell.translate(TEX) for cell in cells) + r" \\"


def _latex(cell: Cell) -> str:
    return (rf"\textbf{{{cell.text}}}" if cell.bold else cell.text) + (f" ± {cell.sd}" if cell.sd else "")


def to_html(table: pd.DataFrame) -> str:
    """Return a table element; a group's first row has the class `first`, a row with GRU or clipping `under`."""
    splits = list(dict.fromkeys(split for split, _ in _pairs(table)))
    heads = "".join(f'<th colspan="{len(METRICS)}">{html.escape(split_label(split))}</th>' for split in splits)
    names = "".join(f"<th>{label} ↑</th>" for _ in splits for label in METRICS.values())
    lines = [f'<thead><tr><th rowspan="2">Method</th>{heads}</tr><tr>{names}</tr></thead>']
    for row in print_rows(table):
        style = " ".join(["first"] * row.first + ["under"] * row.under)
        cells = "".join(f"<td>{_html(cell)}</td>" for cell in row.cells)
        lines.append(f'<tr class="{style}"><th scope="row">{html.escape(row.label)}</th>{cells}</tr>')
    return '<table class="numbers main">' + "\n".join(lines) + "</table>"


def _html(cell: Cell) -> str:
    text = f"<strong>{cell.text}</strong>" if cell.bold else cell.text
    return text + (f' <span class="sd">± {cell.sd}</span>' if cell.sd else "")


def chosen_settings(runs: pd.DataFrame, references: pd.DataFrame) -> pd.DataFrame:
    """Return, as texts, what each row of the main table was run with and picked from."""
    other = varied(runs)
    members = runs.drop_duplicates("configuration").set_index("configuration")
    rows = []
    for row in choose(runs, references).to_dict("records"):
        member = members.loc[row["configuration"]]
        rows.append(
            {
                "Split": row["benchmark.split"],
                **described(row["method"], row["rectifier.name"], row["gamma"], row["tau"]),
                **{column: str(member[column]) for column in other},
                "Seeds": row["seeds"],
                "n of planned": f"{row['n']} of {row['planned']}",
                "Chosen from": f"{row['settings']}",
                KEEPS: _kept(row),
                "Trial": row["id"],
            }
        )
    columns = ["Split", "Method", "gamma", "tau", *other, "Seeds", "n of planned", "Chosen from", KEEPS, "Trial"]
    return pd.DataFrame(rows, columns=columns, dtype="str")


def _kept(row: dict[Hashable, Any]) -> str:
    if not row["bar"] > 0:
        return DASH
    return f"{'yes' if row['kept'] else 'no'} ({SHARE * row['model_utility'] / row['bar']:.1%})"


def described(method: str, rectifier: str, gamma: float, tau: float) -> dict[str, str]:
    """Return a trial's Method, gamma and tau as texts: `none` where set so, a dash where there is no such setting."""
    return {
        "Method": " ".join(filter(None, [method_label(method), WITH.get(rectifier)])),
        "gamma": _setting(gamma) if rectifier == "gru" else DASH,
        "tau": _setting(tau) if rectifier in WITH else DASH,
    }


def _setting(value: float) -> str:
    return "none" if pd.isna(value) else f"{value:g}"
