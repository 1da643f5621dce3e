"""Figures 1 and 7 of the paper: cosine, retain risk and angles of unlearning and retain gradient along training."""

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from analysis.figures.style import DASHED_LINE, FIGURE_RC_PARAMS, GREY, add_legend, make_panels, marker_style
from analysis.labels import TASK_VECTOR_METHODS, format_forget_split, format_rectifier_part, method_label, order_values
from analysis.load.trials import read_trial_parquet
from analysis.stats.sweep_results import SHORT_NAMES, SweepResults
from trainables.storage.file_names import STEPS

STEP_COLUMNS = ["cos_before", "cos_after", "retain_loss", "observed_cos", "observed_cos_after", "observed_retain_loss"]
"""Columns of a rectified step against the moving average, and of `observe=K` every K steps (training.loop)."""
STEP_COLUMNS = ["split", "method", "rectifier", "seed", "id", "step", *STEP_COLUMNS]
DYNAMICS_LINE_KEY_COLUMNS = ["split", "method", "rectifier"]
MAX_DRAWN_STEPS = 250
"""Points of a line that are drawn at most: a figure in print has no room for more."""
PLOTTED_COLUMNS = {"cos": "cos_before", "cos_after": "cos_after", "retain_loss": "retain_loss"}
"""What is drawn, and the column of each step that has it; that of `observe` is called so after `observed_`."""
UNRECTIFIED_LINE_STYLE, MIN_DRAWN_COSINE_CHANGE = ":", 1e-4
"""The dashes of a cosine before rectification, and the least change by it that is drawn."""
ANGLE_LINE_DEFINITIONS = {
    "Orig.": ("none", "observed_cos"),
    "Pre-rect.": ("gru", "cos_before"),
    "Post-rect.": ("gru", "cos_after"),
}
"""The paper's labels: of which rectifier and which column they are."""


def load_chosen_trial_steps(results: SweepResults) -> pd.DataFrame:
    """Return one row for each step of every evaluated trial, all seeds, of the settings that the rule chose."""
    trials = results.chosen_trials.rename(columns=SHORT_NAMES)
    parts = []
    for trial in trials.loc[~trials["method"].isin(TASK_VECTOR_METHODS)].to_dict("records"):
        table = read_trial_parquet(results.store, results.store.trial(trial["id"]) / STEPS, ["step", *STEP_COLUMNS])
        if "step" in table.column_names:
            found = table.to_pandas().astype(float)
            parts.append(found.assign(**{name: trial[name] for name in [*DYNAMICS_LINE_KEY_COLUMNS, "seed", "id"]}))
    return pd.concat(parts).reindex(columns=STEP_COLUMNS) if parts else pd.DataFrame(columns=STEP_COLUMNS)


def add_means_over_seeds(rows: pd.DataFrame, by: list[str], values: list[str]) -> pd.DataFrame:
    """Return rows of single seeds (`kind` seed, n = 1) and below them their means at each step (`kind` mean).

    Of each line, which is one of `by`, every K-th step is left: the least K that leaves MAX_DRAWN_STEPS at most. A mean
    is of all seeds of its line: it ends with the first seed that does, for a mean over the others would jump.
    """
    steps: Any = rows.groupby(by)["step"]
    rows = rows.loc[(steps.rank("dense") - 1) % np.ceil(steps.transform("nunique") / MAX_DRAWN_STEPS) == 0]
    seeds = rows.groupby(by)["seed"].transform("nunique")
    everyone = rows.groupby([*by, "step"])["seed"].transform("nunique") == seeds
    groups = rows.loc[everyone].groupby([*by, "step"], sort=False)
    means = groups.agg(**{value: (value, "mean") for value in values}, n=("seed", "nunique")).reset_index()
    found = pd.concat([rows.assign(kind="seed", n=1), means.assign(kind="mean")], ignore_index=True)
    return found.reindex(columns=[*by, "kind", "seed", "n", "step", *values])


def tabulate_cosine_and_loss(steps: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each step of each seed and of their mean, before (`cos`) and after rectification.

    `measured`: on rows of their own every K steps (`observe`), else of each step against the moving average.
    """
    looks: Any = steps.groupby(DYNAMICS_LINE_KEY_COLUMNS)["observed_cos"].transform("count")
    observed = looks > 0
    found = {name: steps[f"observed_{name}"].where(observed, steps[each]) for name, each in PLOTTED_COLUMNS.items()}
    rows = steps.assign(**found, measured=np.where(observed, "observe", "each step")).dropna(subset=["cos"])
    return add_means_over_seeds(rows, [*DYNAMICS_LINE_KEY_COLUMNS, "measured"], list(PLOTTED_COLUMNS))


def tabulate_angles(steps: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each step of each seed and of their mean, `angle` in degrees, by ANGLE_LINE_DEFINITIONS."""
    parts = []
    for line, (rectifier, column) in ANGLE_LINE_DEFINITIONS.items():
        rows = steps.loc[steps["rectifier"] == rectifier].dropna(subset=[column])
        cosines = rows[column].astype(float).clip(-1, 1)
        parts.append(rows.assign(line=line, angle=np.degrees(np.arccos(cosines))))
    return add_means_over_seeds(pd.concat(parts), ["split", "method", "line"], ["angle"])


@mpl.rc_context(FIGURE_RC_PARAMS)
def draw_cosine_and_loss(points: pd.DataFrame) -> Figure:
    """Draw one split's points: cosine above risk, one column for each method; seeds thin, their mean thick."""
    changed = set(points.loc[(points["cos_after"] - points["cos"]).abs() > MIN_DRAWN_COSINE_CHANGE, "rectifier"])
    looks = {name: _line_look(name, format_rectifier_part(name, "method alone")) for name in set(points["rectifier"])}
    before = {name: looks[name] | {"linestyle": UNRECTIFIED_LINE_STYLE} for name in changed}
    for look in before.values():
        look["label"] += ", before rectification"
    low, high = (float(end(points["retain_loss"].dropna(), default=0.0)) for end in (min, max))
    log = 0 < 10 * low <= high
    labels = [r"$\cos(g_\mathrm{u}, g_\mathrm{r})$", "retain risk (log axis)" if log else "retain risk"]
    figure, panels = _make_columns(points, labels)
    for method, (cosine, risk) in panels.items():
        rows = points.loc[points["method"] == method]
        cosine.axhline(0, color=GREY, linewidth=0.6, zorder=1)
        _draw_lines(cosine, rows.loc[rows["rectifier"].isin(changed)], "rectifier", "cos", before)
        _draw_lines(cosine, rows.assign(cos=rows["cos_after"].fillna(rows["cos"])), "rectifier", "cos", looks)
        _draw_lines(risk, rows, "rectifier", "retain_loss", looks)
        risk.set_yscale("log" if log else "linear")
    add_legend(figure)
    return figure


@mpl.rc_context(FIGURE_RC_PARAMS)
def draw_angles(points: pd.DataFrame) -> Figure:
    """Draw one split's `tabulate_angles`, a panel for each method: above 90 degrees a step works against retaining."""
    looks = {line: _line_look(rectifier, line) for line, (rectifier, _) in ANGLE_LINE_DEFINITIONS.items()}
    looks["Pre-rect."]["linestyle"] = UNRECTIFIED_LINE_STYLE
    figure, panels = _make_columns(points, [""])
    for method, (axes,) in panels.items():
        axes.axhline(90, color=GREY, linewidth=0.6, zorder=1)
        _draw_lines(axes, points.loc[points["method"] == method], "line", "angle", looks)
        axes.yaxis.set_major_locator(MultipleLocator(30 if np.ptp(points["angle"]) > 60 else 10))
    label = "angle to the retain gradient\nor its average, degrees"  # of other rows for Orig.; GRU's for the others
    figure.supylabel(label, fontsize=8, multialignment="center")
    add_legend(figure)
    return figure


def _make_columns(rows: pd.DataFrame, labels: list[str]) -> tuple[Figure, dict[str, list[Axes]]]:
    """Return a figure and each method's panels, one below another; all methods have the same axis of a value."""
    methods = order_values(rows["method"])
    across = min(len(methods), 4)
    figure, grid = make_panels(len(labels) * -(-len(methods) // across), across, 1.9, 1.55)
    figure.suptitle(format_forget_split(str(rows["split"].iloc[0])), fontsize=8, fontweight="bold")
    panels = {}
    for axes in grid.flat:
        axes.set_axis_off()
    for place, method in enumerate(methods):
        top = place // across * len(labels)
        panels[method] = list(grid[top : top + len(labels), place % across])
        for axes, first, label in zip(panels[method], grid[:, 0], labels, strict=False):
            axes.set_axis_on()
            axes.tick_params(labelleft=place % across == 0, labelbottom=axes is panels[method][-1])
            axes.set_ylabel(label if place % across == 0 else "")
            if place:
                axes.sharey(first)
        panels[method][0].set_title(method_label(method))
        panels[method][-1].set_xlabel("step")
        panels[method][-1].locator_params(axis="x", integer=True)
    return figure, panels


def _line_look(rectifier: str, label: str) -> dict[str, Any]:
    look = {"color": GREY, "linestyle": DASHED_LINE} if rectifier == "none" else {"color": "black", "linestyle": "-"}
    return marker_style("", rectifier) | look | {"markersize": 3.5, "label": label}


def _draw_lines(axes: Axes, rows: pd.DataFrame, by: str, value: str, looks: Mapping[str, dict[str, Any]]) -> None:
    """Draw lines of `add_means_over_seeds`: seeds thin, their mean thick, with the rectifier's mark."""
    for name, line in rows.groupby(by):
        look = looks[str(name)]
        mean = line.loc[line["kind"] == "mean"].sort_values("step")
        axes.plot(mean["step"], mean[value], **look, markevery=max(1, len(mean) // 6), linewidth=1.5, zorder=3)
        thin = {**look, "marker": "", "label": "thin: one seed" if any(line["n"] > 1) else ""}
        for _, seed in line.loc[line["kind"] == "seed"].groupby("seed"):
            axes.plot(seed["step"], seed[value], **thin, linewidth=0.5, alpha=0.5, zorder=2)
