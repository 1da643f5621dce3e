"""Tidy frames of runs and of the paper, drawn in one figure: where a row comes from, and what panels are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from analysis.figures.style import rank
from analysis.load import goals
from analysis.load.goals import Column
from analysis.runs import settings
from analysis.tables.format import split_label
from analysis.tables.main import REFERENCES
from analysis.tables.tidy import SOURCE

BACKBONES = {"llama": "Llama", "phi": "Phi", "zephyr": "Zephyr", "iclm": "ICLM"}
PLACE = ["benchmark", "backbone", "split"]
MODELS = tuple(REFERENCES)
FREE = ["rectifier.gamma", "rectifier.tau"]


def sourced(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a tidy frame with `source` (runs, paper), and `sd`, `n`, `chosen` where the paper's tables have none."""
    source = frame["table"].where(frame["table"] == SOURCE, "paper")
    added = {"sd": float("nan"), "n": float("nan")}
    missing = {name: value for name, value in added.items() if name not in frame}
    chosen = frame["chosen"].where(frame["chosen"].notna(), True).astype(bool) if "chosen" in frame else True
    return frame.assign(source=source, chosen=chosen, **missing)


def alike(runs: pd.DataFrame) -> bool:
    """Return whether trials were measured in the paper's dialect: others measure otherwise, and do not compare."""
    return set(runs.reindex(columns=["benchmark.dialect"])["benchmark.dialect"].dropna()) <= {"paper"}


def beside(frame: pd.DataFrame, of_paper: pd.DataFrame) -> pd.DataFrame:
    """Return what of the paper's rows is on a benchmark, backbone and split of `frame`: what may be laid over it."""
    known = frame[PLACE].drop_duplicates()
    return of_paper.merge(known, on=PLACE)


def near_chosen(frame: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose settings are the chosen one's of their study but for gamma and tau.

    Sweeps may vary the learning rate and more beside them: a curve over gamma is of one of these.
    """
    table = settings(runs).drop(columns=FREE, errors="ignore")
    texts = dict(zip(table.index, map(str, table.to_dict("records")), strict=True))
    of_trial = dict(zip(runs["id"], runs["configuration"].map(texts.get), strict=True))
    other = frame["id"].map(of_trial.get).fillna("")
    study = frame[["split", "method", "rectifier"]].astype(str).agg("\n".join, axis=1)
    chosen = dict(zip(study[frame["chosen"]], other[frame["chosen"]], strict=True))
    return frame.loc[other == study.map(chosen.get)]


def compared(frame: pd.DataFrame) -> tuple[Column, ...]:
    """Return the goals of a frame's benchmark that it has rows of: none of a sweep that has no result yet."""
    if frame.empty:
        return ()
    what = goals.goals(frame["benchmark"].iloc[0])
    names = {goal.metric for goal in what.compared} & set(frame["metric"])
    return tuple(column for column in what.columns if column.metric in names)


def in_order(methods: Iterable[str]) -> list[str]:
    """Return methods, each once, in the paper's order."""
    return sorted(set(methods), key=lambda name: (rank(name), name))


def places(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (backbone, split) of all panels in the paper's order: Llama before Phi, 5 % before 10 %."""
    pairs = set(zip(frame["backbone"], frame["split"], strict=True))
    known = list(BACKBONES)
    return sorted(pairs, key=lambda pair: (known.index(pair[0]) if pair[0] in known else len(known), *pair))


def title(backbone: str, split: str) -> str:
    """Return `Llama, forget05 (5%)`; the backbone is left out where it is not known."""
    return ", ".join(filter(None, [BACKBONES.get(backbone, backbone), split_label(split)]))


def numbers(texts: Sequence[str] | pd.Series) -> list[float]:
    """Return values of gamma or tau as numbers, NaN for `none`."""
    return [float("nan") if text == "none" else float(text) for text in texts]
