"""Write trials.csv, table.md and lasting.png beside this file from a storage: python -m docs.lasting.collect STORAGE"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

from analysis.load.trials import load, open_storage, references
from analysis.stats.significance import adjust_p_values_holm, paired_t_test
from trainables.robustness.attacks import read_trial_recoveries
from trainables.storage.sweep_file import map_sweep_labels_to_names

HERE = Path(__file__).parent
CELL, BUDGET = ["method", "rectifier"], 0.95
MEASURES = {"kept": "utility kept", "removed": "removed before the attack", "left": "left after the worst attack"}
MARKS = {"none": "o", "gru": "s", "bisector": "^", "balanced": "D"}
COLOURS = {"npo": "#0072B2", "gd": "#D55E00", "simnpo": "#009E73"}


def read_trials(storage: str) -> pd.DataFrame:
    """Return a row for each attacked trial: utility over the target model's, and extraction strength of the answers.

    left: after the worst relearning, less that of the retain model after its own worst.
    """
    store, rows = open_storage(storage), []
    for label in map_sweep_labels_to_names(store):
        models = references(label, store).set_index("role")
        for trial in load(label, store).to_dict("records"):
            attacks = [one for one in read_trial_recoveries(trial["id"], store) if one["attack"] == "sweep"]
            balanced = trial.get("objective.retain_coefficient") == "balanced"
            for attack in attacks:
                row = {"method": trial["method"].removesuffix("_gd"), "objective": trial["method"]}
                row |= {"rectifier": "balanced" if balanced else trial["rectifier.name"], "seed": int(trial["seed"])}
                row |= {"step": trial["chosen_step"], "kept": trial["model_utility"]}
                row["kept"] /= models.loc["original", "model_utility"]
                row |= {"quality": trial["forget_quality"], "removed": attack["target"] - attack["before"]}
                row |= {name: attack[name] for name in ("target", "before", "after", "retain_before", "retain")}
                row |= {"left": attack["after"] - attack["retain"], **attack["worst"], "id": trial["id"]}
                rows.append(row)
    return pd.DataFrame(rows).sort_values([*CELL, "seed"], key=rank_names)


def rank_names(column: pd.Series) -> pd.Series:
    """Return the place of each method or rectifier in COLOURS or MARKS, other columns as they are."""
    order = {"rectifier": list(MARKS), "method": list(COLOURS)}.get(str(column.name))
    return column.map(order.index) if order else column


def mean_interval(values: pd.Series) -> tuple[float, float]:
    """Return the mean over seeds, and half the width of its 95 % t interval."""
    return values.mean(), stats.t.ppf(0.975, len(values) - 1) * values.sem()


def tabulate(trials: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each objective and rectifier: n, means with intervals, differences by seed with theirs.

    Holm p: of the differences to no rectifier.
    """
    rows = []
    for (method, rectifier), cell in trials.groupby(CELL, sort=False):
        row = {"objective": "/".join(cell["objective"].unique()), "rectifier": rectifier, "n": len(cell)}
        row["within the budget"] = sum(cell["kept"] >= BUDGET)
        for name, title in MEASURES.items():
            mean, half = mean_interval(cell[name])
            row[title] = f"{mean:.3f} ± {half:.3f}"
        of = trials.loc[trials["method"] == method].set_index("seed")
        p = np.nan
        for other in ("none", "gru"):
            gains = (cell.set_index("seed")["left"] - of.loc[of["rectifier"] == other, "left"]).dropna().tolist()
            tested = paired_t_test(gains) if rectifier not in ("none", other) and gains else None
            told = f"{np.mean(gains):+.3f} ({tested['low']:+.3f} to {tested['high']:+.3f})" if tested else ""
            row[f"left, less that of {other}"] = told
            p = tested["p"] if tested and other == "none" else p
        rows.append(row | {"Holm p": p})
    found = pd.DataFrame(rows)
    found["Holm p"] = adjust_p_values_holm(found["Holm p"]).map(lambda p: "" if np.isnan(p) else f"{p:.2g}")
    return found


def read_retrained_band(storage: str) -> tuple[float, float]:
    """Return the lowest and the highest utility of the retain models of all seeds, as shares of the target model's."""
    store = open_storage(storage)
    models = references(next(iter(map_sweep_labels_to_names(store))), store).set_index("role")["model_utility"]
    shares = models.loc[["retain", "retrained"]] / models["original"]
    return shares.min(), shares.max()


def draw(trials: pd.DataFrame, band: tuple[float, float], file: Path) -> None:
    """Draw utility against what is left after the worst attack: means with 95 % intervals, each seed, and the band."""
    figure, panel = plt.subplots(figsize=(7.5, 4.5), constrained_layout=True)
    for (method, rectifier), cell in trials.groupby(CELL, sort=False):
        (x, x_half), (y, y_half) = mean_interval(cell["left"]), mean_interval(cell["kept"])
        style = {"color": COLOURS[method], "marker": MARKS[rectifier]}
        panel.scatter(cell["left"], cell["kept"], s=12, alpha=0.35, linewidths=0, **style)
        label = f"{method}, {rectifier} (n = {len(cell)})"
        panel.errorbar(x, y, yerr=y_half, xerr=x_half, ms=7, lw=1, capsize=2, label=label, **style)
    panel.axhline(BUDGET, color="gray", lw=0.8, ls="--", label="budget: 95 % of the utility")
    panel.axhspan(*band, color="gray", alpha=0.25, lw=0, label="retain models of five seeds")
    panel.axvline(0, color="gray", lw=0.8, ls=":")
    panel.set(xlabel="left after the worst attack: extraction strength above the retain model's own worst")
    panel.set(ylabel="utility, share of the target model's")
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    found = read_trials(sys.argv[1])
    found.to_csv(HERE / "trials.csv", index=False, float_format="%.4g")
    table = tabulate(found).to_markdown(index=False, disable_numparse=True)
    (HERE / "table.md").write_text(table + "\n", encoding="utf-8")
    draw(found, read_retrained_band(sys.argv[1]), HERE / "lasting.png")
    print(table)
