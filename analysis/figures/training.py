"""Figures 1 and 7 of the paper: cosine, retain risk and angles of unlearning and retain gradient along training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from analysis.figures.style import GREY, STYLE, THICK, even_columns, legend_entry, make_grid, rectifier_look
from analysis.labels import method_label, order_methods, order_rectifiers, rectifier_label, split_label
from analysis.stats.training_curves import LINE, thin_steps, with_means

VALUES = ["cos", "cos_after", "retain_loss", "loss"]
COLUMNS = [*LINE, "kind", "seed", "n", "step", "measured", *VALUES]
OBSERVED, STEPPED, LOSS = "observe", "each step", "loss"
FROM = {
    OBSERVED: ("observed_cos", "observed_cos_after", "observed_retain_loss", "loss"),
    STEPPED: ("cos_before", "cos_after", "retain_loss", "loss"),
}
BEFORE, CHANGED = ":", 1e-4
"""The dashes of a cosine before rectification, and the least change by it that is drawn."""
LABELS = {"cos": r"$\cos(g_\mathrm{u}, g_\mathrm{r})$", "retain_loss": "retain risk", "loss": "objective's loss"}
ANGLES: dict[str, tuple[str, str, str]] = {
    "Orig.": ("none", "observed_cos", "none"),
    "Pre-rect.": ("gru", "cos_before", "clip"),
    "Post-rect.": ("gru", "cos_after", "gru"),
}
"""The paper's labels: of which rectifier and which column they are, and whose look they have."""
ANGLE_LINE = ["split", "method", "line"]
ANGLE_COLUMNS = [*ANGLE_LINE, "kind", "seed", "n", "step", "angle"]
VECTORS = "angle to the retain gradient\nor its average, degrees"
"""Orig. is to the retain gradient of other rows, Pre-rect. and Post-rect. are to GRU's moving average of it."""
ACROSS = 4
FINE = 60.0
"""Degrees up to which ticks are 10 apart; so that 90 always has one, they are 30 apart beyond."""
WIDE = 10.0
"""Risks that differ this many times are on a logarithmic axis."""


def step_points(steps: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each step of each seed and of their mean, before (`cos`) and after rectification.

    `measured`: on rows of their own every K steps (`observe`), where a line's trials have that; else of each rectified
    step, against the moving average. Of a method without rectifier and without observation only the loss is known.
    """
    parts = []
    for _, line in steps.groupby(LINE, sort=False):
        known = {OBSERVED: line["observed_cos"], STEPPED: line["cos_before"], LOSS: line["loss"]}
        measured = next((name for name, column in known.items() if any(column.notna())), LOSS)
        columns = FROM[OBSERVED if measured == OBSERVED else STEPPED]
        found = {name: line[column] for name, column in zip(VALUES, columns, strict=True)}
        parts.append(thin_steps(line.assign(**found, measured=measured).loc[known[measured].notna()]))
    rows = pd.concat(parts) if parts else pd.DataFrame(columns=COLUMNS)
    found = with_means(rows.reindex(columns=COLUMNS), [*LINE, "measured"], VALUES)
    return found.reindex(columns=COLUMNS)


def angle_points(steps: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each step of each seed and of their mean, `angle` in degrees.

    Orig.: of the plain method, observed every K steps against a retain gradient on rows of its own (`observe=K`).
    Pre-rect. and Post-rect.: of GRU at every step, against the moving average that it rectifies against.
    """
    parts = []
    for line, (rectifier, column, _) in ANGLES.items():
        rows = steps.loc[steps["rectifier"] == rectifier].dropna(subset=[column])
        cosines = rows[column].astype(float).clip(-1, 1)
        rows = rows.assign(line=line, angle=np.degrees(np.arccos(cosines)))
        parts += [thin_steps(seeds) for _, seeds in rows.groupby(["split", "method"], sort=False)]
    rows = pd.concat(parts) if parts else pd.DataFrame(columns=ANGLE_COLUMNS)
    return with_means(rows.reindex(columns=ANGLE_COLUMNS), ANGLE_LINE, ["angle"]).reindex(columns=ANGLE_COLUMNS)


@mpl.rc_context(STYLE)
def draw_steps(points: pd.DataFrame, split: str) -> Figure:
    """Draw one split's `step_points`: cosine above risk, one column for each method; seeds thin, their mean thick.

    Cosines are after rectification, and dotted before it where it changes them. Where of a method alone only the loss
    is known, losses are below, each method's on its own scale.
    """
    here = points.loc[points["split"] == split]
    methods = order_methods(here["method"])
    across = even_columns(len(methods), ACROSS)
    blocks = [methods[start : start + across] for start in range(0, len(methods), across)]
    values = [name for name in LABELS if here[name].notna().any() and name in {"cos", "retain_loss", *here["measured"]}]
    size = (min(7.4, 1.2 + 1.9 * across), (0.3 + 1.3 * len(values)) * len(blocks) + 0.75)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(split_label(split), fontsize=8, fontweight="bold")
    looks = {name: _line_look(name) for name in order_rectifiers(here["rectifier"])}
    changed = set(here.loc[(here["cos_after"] - here["cos"]).abs() > CHANGED, "rectifier"])
    before = {name: look | {"linestyle": BEFORE} for name, look in looks.items() if name in changed}
    after = here["cos_after"].fillna(here["cos"])
    for part, block in zip(figure.subfigures(len(blocks), 1, squeeze=False).flatten(), blocks, strict=True):
        grid = part.subplots(len(values), across, sharex="col", squeeze=False)
        for axes in grid[:, len(block) :].flatten():
            axes.set_axis_off()
        for panels, method in zip(grid.T, block, strict=False):
            rows = here.loc[here["method"] == method]
            for axes, value in zip(panels, values, strict=True):
                if value == "cos":
                    axes.axhline(0, color=GREY, linewidth=0.6, zorder=1)
                    _draw_lines(axes, rows.loc[rows["rectifier"].isin(changed)], "rectifier", "cos", before)
                _draw_lines(axes, rows.assign(cos=after), "rectifier", value, looks)
            panels[0].set_title(method_label(method))
            panels[-1].set_xlabel("step")
        for value, line in zip(values, grid, strict=True):
            for axes in line[: len(block) if value != LOSS else 0]:
                _scale_y(axes, pd.Series([*here[value], *after]) if value == "cos" else here[value], value)
            line[0].set_ylabel(LABELS[value] + " (log axis)" * (line[0].get_yscale() == "log"))
    named = {rectifier_label(name, "method alone"): look for name, look in looks.items()}
    named |= {f"{rectifier_label(name)}, before rectification": look for name, look in before.items()}
    _add_legend(figure, named, here, 4)
    return figure


def _scale_y(axes: Axes, values: pd.Series, value: str) -> None:
    """Give all panels of a value the same axis."""
    low, high = values.min(), values.max()
    wide = value == "retain_loss" and 0 < WIDE * low <= high
    axes.set_yscale("log" if wide else "linear")
    margin = 0.06 * ((high - low) or 0.1)
    axes.set_ylim((low / 1.2, high * 1.2) if wide else (low - margin, high + margin))


@mpl.rc_context(STYLE)
def draw_angles(points: pd.DataFrame, split: str) -> Figure:
    """Draw one split's `angle_points`, one panel for each method: above 90 degrees a step works against retaining."""
    here = points.loc[points["split"] == split]
    methods = order_methods(here["method"])
    across = even_columns(len(methods), ACROSS)
    rows = -(-len(methods) // across)
    figure = Figure(figsize=(min(7.4, 1.2 + 1.9 * across), 1.6 * rows + 0.95), layout="constrained")
    figure.suptitle(split_label(split), fontsize=8, fontweight="bold")
    looks = {line: _line_look(like) for line, (_, _, like) in ANGLES.items() if line in set(here["line"])}
    panels = make_grid(figure, len(methods), across, sharex=True, sharey=True)
    wide = here["angle"].max() - here["angle"].min() > FINE
    for place, (axes, method) in enumerate(zip(panels, methods, strict=True)):
        axes.axhline(90, color=GREY, linewidth=0.6, zorder=1)
        _draw_lines(axes, here.loc[here["method"] == method], "line", "angle", looks)
        axes.set_title(method_label(method))
        axes.yaxis.set_major_locator(MultipleLocator(30 if wide else 10))
        if place + across >= len(methods):
            axes.set_xlabel("step")
            axes.tick_params(labelbottom=True)
    figure.supylabel(VECTORS, fontsize=8, multialignment="center")
    _add_legend(figure, looks, here, 5)
    return figure


def _line_look(rectifier: str) -> dict[str, Any]:
    look = rectifier_look(rectifier)
    return {"color": look.colour, "linestyle": look.dashes}


def _draw_lines(axes: Axes, rows: pd.DataFrame, by: str, value: str, looks: Mapping[str, dict[str, Any]]) -> None:
    """Draw each line of `steps.with_means` over its steps: seeds thin, their mean thick."""
    for name, line in rows.groupby(by):
        look = looks[str(name)]
        for _, seed in line.loc[line["kind"] == "seed"].groupby("seed"):
            axes.plot(seed["step"], seed[value], **look, linewidth=0.5, alpha=0.5, zorder=2)
        mean = line.loc[line["kind"] == "mean"].sort_values("step")
        axes.plot(mean["step"], mean[value], **look, linewidth=THICK, zorder=3)


def _add_legend(figure: Figure, looks: Mapping[str, dict[str, Any]], rows: pd.DataFrame, columns: int) -> None:
    """Add an entry for each label's look, and for single seeds where means are of several."""
    handles = [legend_entry(label, **look, linewidth=THICK) for label, look in looks.items()]
    if any(rows["n"] > 1):
        handles.append(legend_entry("thin: one seed", color=GREY, linewidth=0.5))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)
