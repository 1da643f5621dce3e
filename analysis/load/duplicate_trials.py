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
    twice. An evaluated one counts, and of several the calibrated one.
    """
    rank = 2 * frame["status"].isin(EVALUATED) + frame["calibrated"].notna()
    known = frame.loc[frame["configuration"].notna()].assign(rank=rank)
    twins = known.sort_values("rank", ascending=False, kind="stable").duplicated(["configuration", "seed"])
    return frame.drop(index=twins.index[twins]).reset_index(drop=True)


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
