"""A sweep's results as one long frame with the columns of the paper's: a row for each setting and metric."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from analysis import paper
from analysis.labels import MODEL_LABELS, rectifier_takes
from analysis.load.goal_columns import Goals
from analysis.load.trials import list_mixtures
from analysis.number_format import format_setting
from analysis.stats.chosen_settings import SHORT, STUDY_COLUMNS, describe_other_settings, sort_studies

TIDY_COLUMNS = list(paper.load_table("tofu_main").columns)
SETTING_KEY = ["configuration", "split", "method", "rectifier", "gamma", "tau", "strength", "id"]
RUNS_SOURCE = "runs"
"""What stands in `table` where a frame comes from runs; else it is the name of a table of the paper."""
MIXTURE_CHECK_COLUMNS = ("reached", "monotone", "unmixed")
"""Metrics of a mixture of UWC: the share of its seeds for which each holds."""


def make_tidy_frame(
    runs: pd.DataFrame, models: pd.DataFrame, means: pd.DataFrame, chosen: pd.DataFrame, goals: Goals
) -> pd.DataFrame:
    """Return one row for each setting and metric: `value`, `sd` (n - 1) and `n` over its seeds. Columns: TIDY_COLUMNS.

    `gamma` and `tau` are texts (`none`, `%g`, empty). What is not measured yet has NaN and n = 0. `other` says what
    else the sweep varies within a study. Mixtures of UWC are rows with `target`, `weight` and MIXTURE_CHECK_COLUMNS.
    """
    found = _settings(runs, means)
    parts = [_melt_references(models, goals.metrics), _melt(found, goals.metrics), _mixtures(runs, found)]
    frame = pd.concat([part for part in parts if len(part)] or parts)
    others = describe_other_settings(runs)
    backbone = next(iter(runs.reindex(columns=["backbone"])["backbone"].dropna()), "")
    frame = frame.assign(
        table=RUNS_SOURCE,
        benchmark=goals.benchmark,
        backbone=backbone,
        bold=False,
        other=[others.get(configuration, "") for configuration in frame["configuration"]],
        chosen=frame["configuration"].isin(chosen["configuration"]) | frame["method"].isin(MODEL_LABELS),
        n=frame["n"].astype(int),
    )
    return frame.reindex(columns=TIDY_COLUMNS).reset_index(drop=True)


def join_sweeps(frames: Mapping[str, pd.DataFrame], first: Collection[str] = ()) -> pd.DataFrame:
    """Return the rows of several sweeps as one frame, `sweep` saying which each is of; of one sweep its own frame.

    What several have, a method with a rectifier on a split of a backbone, is of one with results, then of one named in
    `first`, then of the one given earlier.
    """
    if len(frames) == 1:
        return next(iter(frames.values()))
    order = sorted(frames, key=lambda label: not {label, label.rpartition("-")[0]} & set(first))
    rows = pd.concat([frames[label].assign(sweep=label) for label in order], ignore_index=True)
    study = [*(rows[name] for name in ("backbone", "split", "method", "rectifier")), rows["target"].notna()]
    measured = (rows["n"] > 0).groupby([*study, rows["sweep"]]).transform("any")
    rank = rows["sweep"].map(order.index) + (~measured).astype(int).mul(len(order))
    return rows.loc[rank == rank.groupby(study).transform("min")].reset_index(drop=True)


def _settings(runs: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `average_seeds` and, with n = 0, of unmeasured settings; gamma and tau as text."""
    absent = runs.dropna(subset=["configuration", *STUDY_COLUMNS])
    absent = absent.loc[~absent["configuration"].isin(measured["configuration"])]
    absent = absent.sort_values("id", kind="stable").drop_duplicates("configuration")
    columns = [*STUDY_COLUMNS, "configuration", "id", "rectifier.gamma", "rectifier.tau", "strength"]
    absent = absent[columns].rename(columns={"rectifier.gamma": "gamma", "rectifier.tau": "tau"})
    parts = [part for part in (measured, absent) if len(part)] or [measured]
    found = sort_studies(pd.concat(parts)).rename(columns=SHORT)
    for setting in ("gamma", "tau"):
        texts = pd.Series([format_setting(value) for value in found[setting]], index=found.index, dtype="str")
        found[setting] = texts.where([rectifier_takes(name, setting) for name in found["rectifier"]], "")
    return found


def _melt(found: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row for each setting and metric, in the settings' order."""
    parts = []
    for metric in metrics:
        stats = {"value": metric, "sd": f"{metric}_sd", "n": f"{metric}_n"}
        rows = found.reindex(columns=[*SETTING_KEY, *stats.values()]).set_axis([*SETTING_KEY, *stats], axis=1)
        parts.append(rows.assign(metric=metric, n=rows["n"].fillna(0)))
    return pd.concat(parts).sort_index(kind="stable")


def _melt_references(references: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row for each reference model and metric."""
    models = references.rename(columns={"role": "method", "evaluation": "id"})
    rows = models.melt(["method", "split", "id"], metrics, "metric", "value")
    rows["value"] = rows["value"].astype(float)
    return rows.assign(configuration="", rectifier="none", gamma="", tau="", n=rows["value"].notna())


def _mixtures(runs: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each setting that was calibrated, target and metric."""
    seeds = list_mixtures(runs).merge(runs[["id", "configuration"]], on="id").drop(columns="id")
    metrics = ["forget_quality", "model_utility", "weight", *MIXTURE_CHECK_COLUMNS]
    seeds[metrics] = seeds[metrics].astype(float)
    long = seeds.melt(["configuration", "target"], metrics, "metric", "value")
    stats = long.groupby(["configuration", "target", "metric"], sort=False)["value"].agg(["mean", "std", "count"])
    stats = stats.set_axis(["value", "sd", "n"], axis=1).reset_index()
    return found.reindex(columns=SETTING_KEY).merge(stats, on="configuration")
