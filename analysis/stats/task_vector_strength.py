"""Task vectors over their strength: FQ and MU of TRU and TV, and who keeps more MU at equal FQ."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd

from analysis.labels import TASK_VECTORS
from analysis.load.goal_columns import TOFU_METRICS
from analysis.number_format import DECIMALS
from analysis.stats.chosen_settings import describe_other_settings
from analysis.stats.sweep_results import Results

COLUMNS = ["kind", "split", "method", "settings", "strength", "relative_change", "n", "chosen", "id"]
COLUMNS += ["forget_quality", "forget_quality_sd", "model_utility", "model_utility_sd"]


def strength_points(results: Results) -> pd.DataFrame:
    """Return means over seeds at each strength of TRU and TV, and the reference models.

    `settings` names what else differs among a method's trials: one curve for each text. `chosen`: by the report's rule.
    """
    vectors, means = (part.loc[part["method"].isin(TASK_VECTORS)] for part in (results.runs, results.means))
    means, references = means.dropna(subset=["strength"]), results.models
    texts: dict[str, str] = {}
    for _, trials in vectors.groupby("method"):
        texts |= describe_other_settings(trials)
    other = means["configuration"].map(texts).str.replace("task_vector.", "")
    means = means.assign(kind="strength", settings=other, split=means["benchmark.split"])
    means["chosen"] = means["configuration"].isin(results.chosen["configuration"])
    models = references.assign(kind="reference", method=references["role"], id=references["evaluation"], n=1)
    models = models.assign(chosen=False, settings="")
    parts = [part.reindex(columns=COLUMNS) for part in (means, models) if len(part)]
    found = pd.concat(parts) if parts else pd.DataFrame(columns=COLUMNS)
    return found.sort_values(["split", "kind", "method", "settings", "strength"], ignore_index=True)


def utility_at_equal_quality(points: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return the MU of TRU and of TV (columns tru, tv) at every measured FQ above the original's that both reach.

    A method's curve is that of its chosen strength's other settings: straight lines between strengths, from the
    original model on. Where a curve passes an FQ several times the highest MU counts.
    """
    here = points.loc[points["split"] == split].dropna(subset=list(TOFU_METRICS))
    start = here.loc[(here["kind"] == "reference") & (here["method"] == "original"), list(TOFU_METRICS)]
    curves = {}
    for method in TASK_VECTORS:
        rows = here.loc[(here["kind"] == "strength") & (here["method"] == method)]
        rows = rows.loc[rows["settings"].isin(rows.loc[rows["chosen"], "settings"])]
        if rows.empty:
            return pd.DataFrame(columns=["forget_quality", *TASK_VECTORS])
        curves[method] = pd.concat([start, rows[list(TOFU_METRICS)]]).to_numpy(dtype=float).tolist()
    top = min(max(quality for quality, _ in curve) for curve in curves.values())
    bottom = max(min(quality for quality, _ in curve) for curve in curves.values())
    floor = max([bottom, *start["forget_quality"]])
    levels = sorted({quality for curve in curves.values() for quality, _ in curve if floor < quality <= top})
    rows = [{"forget_quality": q, **{method: _height(curve, q) for method, curve in curves.items()}} for q in levels]
    return pd.DataFrame(rows, columns=["forget_quality", *TASK_VECTORS]).round(dict.fromkeys(TASK_VECTORS, DECIMALS))


def _height(curve: list[list[float]], quality: float) -> float:
    """Return the highest MU at which the lines between a curve's points pass an FQ within its range."""
    heights = [utility for found, utility in curve if found == quality]
    for (left, low), (right, high) in pairwise(curve):
        if min(left, right) < quality < max(left, right):
            heights.append(low + (high - low) * (quality - left) / (right - left))
    return max(heights)
