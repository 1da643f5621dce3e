"""The noise of retraining: retain models that differ by their seed alone, as a band for the numbers of trials."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.trials import read_trial_parquet
from analysis.stats.significance import Array
from analysis.stats.sweep_results import SweepResults
from trainables.benchmarks.tofu import aggregates
from trainables.storage.file_names import ROWS
from trainables.storage.folder_storage import Storage

KLOM_BIN_COUNT, MAX_MARGIN, KLOM_MIN_BIN_PROBABILITY = 20, 100.0, 1e-5
"""Of KLoM: bins of a histogram, the largest margin, and the least frequency that is divided by."""


def compute_klom(unlearned: Array, retrained: Array) -> float:
    """Return KLoM: mean over rows of KL(unlearned || retrained) of margins, in nats: (m models, rows), (n, rows) -> ().

    By histograms of 20 bins over both's range (Georgiev et al., 2024, 2410.23232, as RoyRin/data-unlearning-bench has
    it, which leaves out the largest margin). Of few models it is coarse: read it beside that of retrained ones.
    """
    from scipy import stats

    found = []
    for one, other in zip(*(side.clip(-MAX_MARGIN, MAX_MARGIN).T for side in (unlearned, retrained)), strict=True):
        low, high = min(one.min(), other.min()), max(one.max(), other.max())
        edges = np.linspace(low, high if high > low else low + 1, KLOM_BIN_COUNT + 1)
        p, q = (np.histogram(values, edges)[0] / len(values) for values in (one, other))
        found.append(stats.entropy(p, np.where(p > 0, np.maximum(q, KLOM_MIN_BIN_PROBABILITY), q)))
    return float(np.mean(found))


def compute_pooled_fq(ratios: Array, retrained: list[Array]) -> float:
    """Return ln p of the KS test between a model's truth ratios and those of all retrained models as one sample.

    One retain model is one draw; against the worst of several, FQ would fall with every seed that is added.
    """
    from scipy import stats

    result: Any = stats.ks_2samp(ratios, np.concatenate(retrained))
    return min(0.0, float(np.log(max(float(result.pvalue), np.finfo(np.float64).tiny))))


def compare_with_retraining_noise(results: SweepResults) -> pd.DataFrame:
    """Return a row for each chosen setting, of splits with at least three retain models: means over its n seeds.

    `utility`, `quality` (`compute_pooled_fq`) and `klom` of the forget rows; `*_low` and `*_high`: the lowest
    and highest of the retain models, each against the others; `within`: utility is between them, quality not below.
    """
    found, metric = [], results.goals.retention.metric
    for split, models in results.retrained.groupby("split"):
        own = results.chosen_trials.loc[results.chosen_trials["benchmark.split"] == split]
        read = _read_rows(results.store, map(results.store.evaluation, models["evaluation"]), own)
        if len(read) < 3:
            continue
        ratios, margins = [one for one, _ in read], np.array([one for _, one in read])
        others = [[*range(k), *range(k + 1, len(read))] for k in range(len(read))]
        bands = {
            "utility": models[metric].dropna(),
            "quality": [compute_pooled_fq(ratios[k], [ratios[n] for n in rest]) for k, rest in enumerate(others)],
            "klom": [compute_klom(margins[[k]], margins[rest]) for k, rest in enumerate(others)],
        }
        ends = {f"{name}_low": min(values) for name, values in bands.items()}
        ends |= {f"{name}_high": max(values) for name, values in bands.items()}
        for (method, rectifier), trials in own.groupby(["method", "rectifier.name"], sort=False):
            if not (rows := _read_rows(results.store, map(results.store.trial, trials["id"]), own)):
                continue
            row = {"split": split, "method": method, "rectifier": rectifier, "n": len(rows), "models": len(read)}
            row |= {"utility": trials[metric].mean(), "klom": compute_klom(np.array([one for _, one in rows]), margins)}
            row["quality"] = float(np.mean([compute_pooled_fq(one, ratios) for one, _ in rows]))
            within = ends["utility_low"] <= row["utility"] <= ends["utility_high"]
            found.append(row | ends | {"within": within and row["quality"] >= ends["quality_low"]})
    return pd.DataFrame(found)


def _read_rows(store: Storage, folders: Iterable[Path], trials: Any) -> list[tuple[Array, Array]]:
    """Return truth ratios and margins, log p / (1 - p) of an answer's mean token, of the forget rows in each folder.

    Those that have no rows are left out, and all where nothing of TOFU is chosen.
    """
    columns = [f"{kind}_{name}" for kind in ("answer", "paraphrase", "perturbed") for name in ("loss", "tokens")]
    guards = [aggregates.EPSILON_BY_DIALECT[one] for one in trials.get("benchmark.dialect", ())]
    found = []
    for folder in folders if guards and set(trials["benchmark.name"]) == {"tofu"} else ():
        if records := read_trial_parquet(store, folder / ROWS, ["task", *columns]).to_pylist():
            losses = aggregates.mean_token_losses(records, "forget", "answer")
            margins = -losses - np.log(-np.expm1(-np.maximum(losses, 1e-12)))
            found.append((aggregates.truth_ratios(records, "forget", guards[0]), margins))
    return found
