"""Which trials have the same settings: their configurations in one spelling, and which of several counts."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from trainables.config.ids import drop_planning, without_paths
from trainables.config.trial import FOLLOWS
from trainables.storage.names import EVALUATED


def drop_twins(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one of the trials that trained the same model: the same settings and seed. The order is kept.

    Starts of one sweep, one of them with `calibration.targets`, leave such twins: one training, which must not count
    twice. The one with more of them counts if it was evaluated, else another; `twins` says how many were left out.
    """
    known = frame.loc[frame["configuration"].notna()]
    targets = known.reindex(columns=["calibration.targets"]).iloc[:, 0]
    asked = targets.map(lambda found: len(found) if isinstance(found, list) else 0)
    able = known["status"].isin(EVALUATED)
    ranked = known.assign(rank=asked.where(able, -asked), able=able)
    ranked = ranked.sort_values(["able", "rank"], ascending=False, kind="stable")
    same = ranked.groupby(["configuration", "seed"], dropna=False, sort=False)["id"]
    twins = (same.transform("size") - 1).reindex(frame.index, fill_value=0)
    dropped = ranked.index[same.cumcount() > 0]
    return frame.assign(twins=twins).drop(index=dropped).reset_index(drop=True)


def canonical(config: dict[str, Any]) -> str | None:
    """Return the settings apart from the seed as canonical JSON, None for an empty configuration.

    As in a trial's id, places are left out where a fingerprint names the content, and what changes no number. So are a
    calibration and observations: they measure mixtures and gradients of a model that is the same without them. And the
    model that an earlier trial of a row of requests left: each seed has its own.
    """
    training, target = config.get("training") or {}, config.get("target") or {}
    left_out = {
        "seed": True,
        "calibration": True,
        "observe": training.get("stop_above") is None,  # a bar on the retain loss looks at what it measures
        "target": str(target.get("fingerprint")).startswith(FOLLOWS),
        "selection": not training.get("eval_every"),  # a trial's own rule chooses among its evaluations
    }
    chosen = without_paths({key: value for key, value in config.items() if not left_out.get(key)})
    chosen.get("selection", {}).pop("seeds", None)
    drop_planning(chosen)
    return json.dumps(chosen, sort_keys=True) if chosen else None
