"""How sure numbers are: whether seeds tell two sides apart, and how much utility hangs on its evaluation rows."""

import contextlib
import logging
import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.trials import read_trial_parquet
from trainables import benchmarks
from trainables.benchmarks import metrics
from trainables.benchmarks.metrics import Array
from trainables.config.settings import Benchmark
from trainables.storage.file_names import ROWS
from trainables.storage.folder_storage import Storage

log = logging.getLogger(__name__)

MIN_TEST_SEEDS, MIN_SEEDS_FOR_DIRECTION, ALPHA = 5, 3, 0.05
"""Seeds below which nothing is tested, and below which nothing is called clear; all tests' error rate together."""
RESAMPLE_COUNT, MAX_SIGN_FLIPS, RESAMPLING_SEED = 2000, 2**14, 0
"""Bootstrap samples of seeds; sign flips, all 2^n up to 14 seeds, else so many at random; the seed of both."""
ROW_RESAMPLE_COUNT = 1000
"""Bootstrap samples of evaluation rows."""
ROW_UTILITY_TOLERANCE = 1e-6
"""Numbers from rows and from a result that are further apart are not of the same evaluation."""
KS_COLUMNS = ["forget_quality_ks", "forget_rows"]
"""D of the KS test behind a forget quality, and n, the rows of each of its two samples: D is a multiple of 1/n."""


def paired_t_test(gains: Sequence[float]) -> dict[str, float]:
    """Return the 95 % interval and p of the two-sided paired t test; NaN below MIN_TEST_SEEDS or of equal gains."""
    if len(gains) < MIN_TEST_SEEDS or np.ptp(gains) <= 1e-12 * np.abs(gains).max():
        return dict.fromkeys(("low", "high", "p"), math.nan)
    from scipy.stats import ttest_1samp

    tested: Any = ttest_1samp(gains, 0.0)
    low, high = tested.confidence_interval(1 - ALPHA)
    return {"low": float(low), "high": float(high), "p": float(tested.pvalue)}


def adjust_p_values_holm(values: pd.Series) -> pd.Series:
    """Return p values adjusted for being so many (Holm, 1979); NaN stays and does not count."""
    ordered = values.dropna().sort_values()
    raised = ordered * np.arange(len(ordered), 0, -1)
    return raised.cummax().clip(upper=1.0).reindex(values.index)


def bootstrap_paired_differences(differences: Sequence[float]) -> dict[str, float]:
    """Return `low`, `high`, `p` and `effect` of paired differences, NaN below MIN_TEST_SEEDS of them.

    low, high: 95 % BCa bootstrap interval of the mean over seeds (Efron, 1987), somewhat narrow for ten. p: exact
    two-sided sign-flip permutation test of the mean (Fisher, 1935), at least 2 / 2^n. effect: Cohen's d_z, the mean
    over the standard deviation, NaN where all are equal.
    """
    gains = np.array(differences, dtype=float)
    if len(gains) < MIN_TEST_SEEDS:
        return dict.fromkeys(("low", "high", "p", "effect"), math.nan)
    from scipy import stats

    shared: dict[str, Any] = {"vectorized": True, "rng": RESAMPLING_SEED}
    tested = stats.permutation_test((gains,), np.mean, permutation_type="samples", n_resamples=MAX_SIGN_FLIPS, **shared)
    mean = float(gains.mean())
    if np.ptp(gains) <= 1e-12 * np.abs(gains).max():
        return {"low": mean, "high": mean, "p": float(tested.pvalue), "effect": math.nan}
    ends = stats.bootstrap((gains,), np.mean, n_resamples=RESAMPLE_COUNT, confidence_level=1 - ALPHA, **shared)
    low, high = map(float, ends.confidence_interval)
    return {"low": low, "high": high, "p": float(tested.pvalue), "effect": mean / float(gains.std(ddof=1))}


def bootstrap_trial_utility(trial: dict[Hashable, Any], store: Storage, halves: bool) -> Array | None:
    """Return `bootstrap_utility_over_rows` of a row of `runs.load`; `halves`: of the second half of its rows."""
    kind = benchmarks.get_benchmark(trial["benchmark.name"])
    asked = trial["benchmark.tasks"] if isinstance(trial.get("benchmark.tasks"), list) else ()
    benchmark = Benchmark(name=kind.name, dialect=trial["benchmark.dialect"], tasks=tuple(asked))
    if not (records := read_trial_parquet(store, store.trial(trial["id"]) / ROWS).to_pylist()):
        return None
    with contextlib.suppress(LookupError, TypeError, ValueError):  # columns of another kind
        found = kind.utility_by_row(benchmark, benchmarks.every_other(records, 1) if halves else records)
        if not found or abs(compute_utility_from_rows(found) - trial[kind.GOALS[-1].metric]) < ROW_UTILITY_TOLERANCE:
            return bootstrap_utility_over_rows(found) if found else None
    log.warning("trials/%s/%s gives another %s than result.json: left out", trial["id"], ROWS, kind.GOALS[-1].short)
    return None


def compute_utility_from_rows(parts: Sequence[Array]) -> float:
    """Return the harmonic mean of the means of all columns: (rows, numbers) of each set of rows. 0 where one is 0."""
    return metrics.harmonic_mean(np.concatenate([part.mean(axis=0) for part in parts]).tolist())


def bootstrap_utility_over_rows(parts: Sequence[Array]) -> Array:
    """Return the utility over ROW_RESAMPLE_COUNT resamples of rows, within each set, all numbers of a row together.

    Sets of as many rows are drawn alike in every trial: differences of two trials are of the same rows.
    """
    from scipy.stats import hmean

    means = [_count_draws(len(part), place) @ part / len(part) for place, part in enumerate(parts)]
    return hmean(np.concatenate(means, axis=1), axis=1)


def percentile_interval(utilities: Array) -> tuple[float, float]:
    """Return the 95 % percentile interval of utilities, or of differences of two, over resamples."""
    confidence = 1 - ALPHA
    low, high = np.quantile(utilities, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


@lru_cache(maxsize=8)
def _count_draws(rows: int, place: int) -> Array:
    """Return how often each row of a set is drawn in each resample: (ROW_RESAMPLE_COUNT, rows)."""
    dice = np.random.default_rng([RESAMPLING_SEED, place])
    return dice.multinomial(rows, np.full(rows, 1 / rows), ROW_RESAMPLE_COUNT).astype(np.float64)
