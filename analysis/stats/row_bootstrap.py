"""Bootstrap intervals of the goal of retention (TOFU's MU): how much of it hangs on the rows it was measured on."""

import contextlib
import logging
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.load.trials import read_trial_parquet
from trainables import benchmarks
from trainables.config.settings import Benchmark
from trainables.storage.file_names import ROWS
from trainables.storage.folder_storage import Storage

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
RESAMPLE_COUNT, CONFIDENCE_LEVEL, RESAMPLING_SEED = 1000, 0.95, 0
UTILITY_TOLERANCE = 1e-6
"""Numbers from rows and from a result that are further apart are not of the same evaluation."""


def resample_utilities_by_trial(trials: pd.DataFrame, store: Storage, halves: bool = False) -> dict[str, Array]:
    """Return `resample_utility` of these rows of `runs.load` by their id; `halves`: of the second half of the rows."""
    found = {str(trial["id"]): _resample_trial(trial, store, halves) for trial in trials.to_dict("records")}
    return {key: utilities for key, utilities in found.items() if utilities is not None}


def _resample_trial(trial: dict[Hashable, Any], store: Storage, halves: bool) -> Array | None:
    kind = benchmarks.get_benchmark(trial["benchmark.name"])
    asked = trial["benchmark.tasks"] if isinstance(trial.get("benchmark.tasks"), list) else ()
    benchmark = Benchmark(name=kind.name, dialect=trial["benchmark.dialect"], tasks=tuple(asked))
    table = read_trial_parquet(store, store.trial(trial["id"]) / ROWS, ["task", "index", *kind.UTILITY_COLUMNS])
    if table is None:
        return None
    records = table.to_pylist()
    with contextlib.suppress(LookupError, TypeError, ValueError):  # columns of another kind
        found = kind.utility_by_row(benchmark, benchmarks.every_other(records, 1) if halves else records)
        if not found or abs(harmonic_utility(found) - trial[kind.GOALS[-1].metric]) < UTILITY_TOLERANCE:
            return resample_utility(found) if found else None
    log.warning("trials/%s/%s gives another %s than result.json: left out", trial["id"], ROWS, kind.GOALS[-1].short)
    return None


def harmonic_utility(parts: Sequence[Array]) -> float:
    """Return the harmonic mean of the means of all columns: (rows, numbers) of each set of rows. 0 where one is 0."""
    return float(_harmonic(np.concatenate([part.mean(axis=0) for part in parts])[None, :])[0])


def resample_utility(parts: Sequence[Array]) -> Array:
    """Return the utility over `RESAMPLE_COUNT` resamples of rows, drawn within each set, all numbers of a row together.

    Sets of as many rows are drawn alike in every trial: differences of two trials are of the same rows.
    """
    means = [_count_draws(len(part), place) @ part / len(part) for place, part in enumerate(parts)]
    return _harmonic(np.concatenate(means, axis=1))


def percentile_interval(utilities: Array) -> tuple[float, float]:
    """Return the percentile interval of utilities, or of differences of two, over resamples."""
    low, high = np.quantile(utilities, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)


@lru_cache(maxsize=8)
def _count_draws(rows: int, place: int) -> Array:
    """Return how often each row of a set is drawn in each resample: (RESAMPLE_COUNT, rows)."""
    dice = np.random.default_rng([RESAMPLING_SEED, place])
    return dice.multinomial(rows, np.full(rows, 1 / rows), RESAMPLE_COUNT).astype(np.float64)


def _harmonic(values: Array) -> Array:
    """Return the harmonic mean of each line; 0 where one of its numbers is 0."""
    with np.errstate(divide="ignore"):
        return values.shape[1] / (1 / values).sum(axis=1)
