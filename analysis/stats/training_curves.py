"""What the chosen trials measured along training, read from their steps.parquet: the columns that figures need."""

from __future__ import annotations

import logging

import pandas as pd
import pyarrow
import pyarrow.parquet

from analysis.labels import TASK_VECTORS
from analysis.stats.chosen_settings import SHORT
from analysis.stats.sweep_results import Results
from trainables.storage.folder_storage import Storage
from trainables.storage.names import STEPS

log = logging.getLogger(__name__)

MEASURED = ["cos_before", "cos_after", "retain_loss", "observed_cos", "observed_cos_after", "observed_retain_loss"]
MEASURED += ["loss"]
"""Columns of a rectified step against the moving average, of `observe=K` every K steps, and of all (training.loop)."""
COLUMNS = ["split", "method", "rectifier", "seed", "id", "step", *MEASURED]
LINE = ["split", "method", "rectifier"]
MOST = 250
"""Points of a line that are drawn at most: a figure in print has no room for more."""


def load_steps(results: Results, store: Storage) -> pd.DataFrame:
    """Return one row for each step of every evaluated trial, all seeds, of the settings that the rule chose.

    NaN: not measured. Task vectors have no such steps. Of other trials than the chosen settings' nothing is read. Files
    that are missing or damaged are left out, with a warning where others are there.
    """
    trials = results.chosen_trials.rename(columns=SHORT)
    parts, missing = [], []
    for trial in trials.loc[~trials["method"].isin(TASK_VECTORS)].to_dict("records"):
        path = store.trial(trial["id"]) / STEPS
        store.fetch(path)  # of an object store only small files are here so far
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                table = file.read(columns=[name for name in ("step", *MEASURED) if name in file.schema_arrow.names])
        except FileNotFoundError:
            missing.append(trial["id"])
        except (OSError, pyarrow.ArrowException) as damage:
            log.warning("trials/%s/%s is damaged: %s", trial["id"], STEPS, damage)
        else:
            found = table.to_pandas().astype(float).assign(**{name: trial[name] for name in [*LINE, "seed", "id"]})
            parts += [found] if "step" in found else []
    if missing and parts:
        example = f"{STEPS} is missing of {len(missing)} trials (such as {missing[0]})"
        log.warning("%s: figures along training are without them", example)
    return pd.concat([part.reindex(columns=COLUMNS) for part in parts]) if parts else pd.DataFrame(columns=COLUMNS)


def thin_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a line's rows, of all its seeds, at every K-th of its steps: the smallest K that leaves at most `MOST`.

    One K for all seeds, however long each ran, so that they have the same steps.
    """
    steps = sorted(set(rows["step"]))
    return rows.loc[rows["step"].isin(steps[:: max(1, -(-len(steps) // MOST))])]


def with_means(rows: pd.DataFrame, by: list[str], values: list[str]) -> pd.DataFrame:
    """Return rows of single seeds (`kind` seed, n = 1) and below them their means at each step (`kind` mean).

    A mean is of all seeds of its line: it ends with the first seed that does, for a mean over the others would jump.
    """
    if rows.empty:
        return rows.assign(kind="seed", n=1)
    seeds = rows.groupby(by)["seed"].transform("nunique")
    everyone = rows.groupby([*by, "step"])["seed"].transform("nunique") == seeds
    groups = rows.loc[everyone].groupby([*by, "step"], sort=False)
    means = groups.agg(**{value: (value, "mean") for value in values}, n=("seed", "nunique")).reset_index()
    return pd.concat([rows.assign(kind="seed", n=1), means.assign(kind="mean")], ignore_index=True)
