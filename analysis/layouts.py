"""The paper's tables, one function each, and which of them a sweep fills.

Each takes a tidy frame, of the paper's numbers (`paper.load`) or of runs (`tidy.from_runs`), and returns a Table in the
paper's own layout. `beside` puts the paper's value and the difference under each number; `command` is the sweep's, for
the note that says how to fill what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd

from analysis import goals, grids, paper, retain_free, tidy
from analysis.printing import Head, Table, split_label
from analysis.selection import DEFAULT
from analysis.sheets import Layout, Measure, numbers
from analysis.tables import REFERENCES, TASK_VECTORS
from trainables.config import Selection
from trainables.storage import FAILURES

QUALITY, UTILITY = Measure("forget_quality", "FQ ↑", 4, "highest"), Measure("model_utility", "MU ↑", 4, "highest")
WMDP_MEASURES = (
    Measure("wmdp_bio", "Bio ↓", 4, "lowest"),
    Measure("wmdp_cyber", "Cyber ↓", 4, "lowest"),
    Measure("mmlu", "MMLU ↑", 4, "highest"),
)
PERCENT = {"forget05": "5%", "forget10": "10%"}
TEXT_METHODS = ("ga", "wga", "gd", "npo", "npo_gd")
SENSITIVE = ("ga", "npo", "gd")

TOFU_MAIN = Layout(
    table="tofu_main",
    caption="TOFU: methods without and with GRU",
    measures=(QUALITY, UTILITY),
    methods=("ga", "wga", "npo", "gd", "npo_kl", "npo_gd", "simnpo_gd"),
    sweeps={"phi": "tofu_phi", "llama": "tofu_llama"},
    backbones={"phi": "Phi-1.5", "llama": "LLaMA2-7B"},
    splits=PERCENT,
    apart=TASK_VECTORS,
)
TOFU_RETAIN_FREE = Layout(
    table="tofu_retain_free",
    caption="TOFU without retain data",
    measures=(Measure("forget_quality", "FQ ↑", 2, "highest"), Measure("model_utility", "MU ↑", 2, "highest")),
    methods=("tv", "ga", "wga", "npo", "tru"),
    sweeps={"phi": "tofu_phi_tru", "llama": "tofu_llama_tru"},
    backbones={"phi": "Phi-1.5", "llama": "Llama2-7B"},
    splits=PERCENT,
    rectifiers=("none",),
    references={"original": "original", "retain": "retrain"},
    compared="column",
    only=True,
)
WMDP = Layout(
    table="wmdp",
    caption="WMDP: methods without and with GRU",
    measures=WMDP_MEASURES,
    methods=TEXT_METHODS,
    sweeps={"zephyr": "wmdp_zephyr"},
    kinds=(Head("Unlearning", 2), Head("Retention")),
    apart=("rmu",),
)
MUSE = Layout(
    table="muse",
    caption="MUSE: methods without and with GRU",
    measures=(
        Measure("verbmem_f", "VerbMem ↓", 4, "lowest"),
        Measure("knowmem_f", "KnowMem-U ↓", 4, "lowest"),
        Measure("knowmem_r", "KnowMem-R ↑", 4, "highest"),
    ),
    methods=TEXT_METHODS,
    sweeps={"iclm": "muse_books"},
)
WMDP_RMU = Layout(
    table="wmdp_rmu",
    caption="WMDP: RMU without and with GRU",
    measures=tuple(Measure(m.metric, m.head, 2, None) for m in WMDP_MEASURES),
    methods=("rmu",),
    sweeps={"zephyr": "wmdp_rmu"},
    references={},
    only=True,
)
TOFU_TAU = Layout(
    table="tofu_tau",
    caption="TOFU: GRU over tau",
    measures=(Measure("forget_quality", "FQ ↑", 4, None), Measure("model_utility", "MU ↑", 4, None)),
    methods=SENSITIVE,
    sweeps={"llama": "tofu_tau"},
    splits={"forget05": ""},
    rectifiers=("gru",),
    references={},
    axis="tau",
    fixed={"ga": "0.8", "npo": "0.8", "gd": "0.05"},
)
TOFU_GAMMA = Layout(
    table="tofu_gamma",
    caption="TOFU: GRU over gamma",
    measures=TOFU_TAU.measures,
    methods=SENSITIVE,
    sweeps={"llama": "tofu_gamma"},
    splits={"forget05": ""},
    rectifiers=("gru",),
    references={},
    axis="gamma",
    fixed={"ga": "1", "npo": "1", "gd": "none"},
)
TOFU_ABLATION = Layout(
    table="tofu_ablation",
    caption="TOFU: neither clipping nor rectification, clipping alone, GRU",
    measures=(QUALITY, UTILITY),
    methods=("ga", "npo"),
    sweeps={"llama": "tofu_ablation"},
    splits={"forget05": ""},
    rectifiers=("none", "clip", "gru"),
    references={},
    components=True,
    apart=TASK_VECTORS,
)


def uwc(method: str) -> Layout:
    """Return the layout of a method's UWC table; the paper has those of GA and NPO. MU is held equal, so never bold."""
    return Layout(
        table=f"tofu_uwc_{method}",
        caption="TOFU at equal utility (UWC)",
        measures=(Measure("forget_quality", "FQ ↑", 1, "highest"), Measure("model_utility", "MU ↑", 2, None)),
        methods=(method,),
        sweeps={"phi": "tofu_phi_uwc"},
        splits={split: f"{percent} Unlearning" for split, percent in PERCENT.items()},
        references={"original": "Original"},
        targets=(0.85, 0.9, 0.95),
        only=True,
    )


TOFU_UWC_GA, TOFU_UWC_NPO = uwc("ga"), uwc("npo")
LAYOUTS = {
    layout.table: layout
    for layout in (
        *(TOFU_MAIN, TOFU_RETAIN_FREE, WMDP, MUSE, WMDP_RMU),
        *(TOFU_TAU, TOFU_GAMMA, TOFU_ABLATION, TOFU_UWC_GA, TOFU_UWC_NPO),
    )
}
"""All of the paper's tables, by their names in `analysis.paper`."""


def tofu_main(frame: pd.DataFrame, beside: bool = False, command: str = "") -> Table:
    """Return `tab:tofu_gru_complete`."""
    return grids.render(TOFU_MAIN, frame, beside, command)


def tofu_retain_free(frame: pd.DataFrame, beside: bool = False, command: str = "") -> Table:
    """Return `tab:tofu rdf`, Table 1."""
    return grids.render(TOFU_RETAIN_FREE, frame, beside, command)


def wmdp(frame: pd.DataFrame, beside: bool = False, command: str = "") -> Table:
    """Return `tab:wmdp`."""
    return grids.render(WMDP, frame, beside, command)


def muse(frame: pd.DataFrame, beside: bool = False, command: str = "") -> Table:
    """Return `tab:muse-books`."""
    return grids.render(MUSE, frame, beside, command)


def wmdp_rmu(frame: pd.DataFrame, beside: bool = False, command: str = "") -> Table:
    """Return `tab:wmdp_rmu`."""
    return grids.render(WMDP_RMU, frame, beside, command)


def tofu_tau(frame: pd.DataFrame, beside: bool = False, command: str = "") -> Table:
    """Return `tab:grad_clip_comparison`, of one backbone and split."""
    return grids.render(TOFU_TAU, frame, beside, command)


def tofu_gamma(frame: pd.DataFrame, beside: bool = False, command: str = "") -> Table:
    """Return `tab:ema_experiment_results`, of one backbone and split."""
    return grids.render(TOFU_GAMMA, frame, beside, command)


def tofu_ablation(frame: pd.DataFrame, beside: bool = False, command: str = "") -> Table:
    """Return `tab:ablation_study`."""
    return grids.render(TOFU_ABLATION, frame, beside, command)


def tofu_uwc_ga(frame: pd.DataFrame, beside: bool = False, command: str = "") -> Table:
    """Return `tab:uwc_phi_ga`."""
    return grids.render(TOFU_UWC_GA, frame, beside, command)


def tofu_uwc_npo(frame: pd.DataFrame, beside: bool = False, command: str = "") -> Table:
    """Return `tab:uwc_phi_npo`."""
    return grids.render(TOFU_UWC_NPO, frame, beside, command)


@dataclass(frozen=True)
class Sheet:
    """A table of a sweep or of the paper: the stem of its files, its title, and what is printed, unrounded."""

    name: str
    title: str
    layout: Layout
    table: Table
    numbers: pd.DataFrame


def of(
    runs: pd.DataFrame,
    references: pd.DataFrame,
    rule: Selection = DEFAULT,
    command: str = "",
    beside: bool = False,
) -> list[Sheet]:
    """Return the tables that a sweep fills: by its benchmark and by what it varied.

    `command` is the sweep's. The paper's numbers are put beside those of its own dialect only: others measure
    otherwise.
    """
    frame = tidy.from_runs(runs, references, rule)
    dialects = set(runs.reindex(columns=["benchmark.dialect"])["benchmark.dialect"].dropna())
    beside = beside and dialects <= {"paper"}
    if command and any(runs["status"].isin(FAILURES)):
        command = f"{command} --retry-failed"
    sheets = []
    for layout in fitting(frame):
        if layout is TOFU_RETAIN_FREE:  # WGA's trials with a retain term are no part of it
            shown = tidy.from_runs(retain_free.trials(runs), references, rule)
        else:
            shown = frame
        sheets += _sheets(layout, shown, beside, command)
    return sheets


def published(benchmark: str) -> list[Sheet]:
    """Return the paper's own tables of a benchmark."""
    kept = [layout for name, layout in LAYOUTS.items() if name.partition("_")[0] == benchmark]
    return [sheet for layout in kept for sheet in _sheets(layout, paper.load(layout.table), False, "")]


def fitting(frame: pd.DataFrame) -> list[Layout]:
    """Return the layouts of what a tidy frame of runs holds."""
    rows = frame.loc[~frame["method"].isin(REFERENCES)]
    if rows.empty:
        return []
    mixed = rows["target"].notna()
    return [*_main(rows), *_varied(rows.loc[~mixed]), *(uwc(str(name)) for name in rows.loc[mixed, "method"].unique())]


def _main(rows: pd.DataFrame) -> Iterator[Layout]:
    """Yield the layouts of methods side by side."""
    benchmark, vectors = rows["benchmark"].iloc[0], rows["method"].isin(TASK_VECTORS)
    kinds = set(rows.loc[~vectors, "rectifier"])
    match benchmark:
        case "wmdp":
            if set(rows["method"]) - {"rmu"}:
                yield WMDP
            if "rmu" in set(rows["method"]):
                yield WMDP_RMU
        case "muse":
            yield MUSE
        case "tofu":
            if "none" in kinds and not (any(vectors) and kinds == {"none"}):
                yield TOFU_MAIN
            if any(vectors):
                yield TOFU_RETAIN_FREE
            if "clip" in kinds:
                yield TOFU_ABLATION


def _varied(rows: pd.DataFrame) -> Iterator[Layout]:
    """Yield the layouts of the settings of GRU that a method was run at several values of."""
    benchmark = str(rows["benchmark"].iloc[0]) if len(rows) else ""
    rectified = rows.loc[rows["rectifier"] == "gru"]
    for layout, axis, other in ((TOFU_TAU, "tau", "gamma"), (TOFU_GAMMA, "gamma", "tau")):
        if not any(rectified.groupby(["split", "method", other])[axis].nunique() > 1):
            continue
        if benchmark == "tofu":
            yield layout
        else:
            found = {"wmdp": WMDP_MEASURES, "muse": MUSE.measures}.get(benchmark) or _goals(benchmark)
            measures = tuple(replace(measure, best=None) for measure in found)
            caption = f"{benchmark.upper()}: GRU over {axis}"
            yield replace(layout, measures=measures, caption=caption, methods=(), sweeps={}, splits={}, fixed={})


def _goals(benchmark: str) -> tuple[Measure, ...]:
    return tuple(Measure(column.metric, column.head, 4, None) for column in goals.goals(benchmark).columns)


def _sheets(layout: Layout, frame: pd.DataFrame, beside: bool, command: str) -> Iterator[Sheet]:
    """Yield a layout's table; of an axis and of components one for each split, which their layouts have no heads for."""
    splits = sorted(frame["split"].unique())
    several = bool(layout.axis or layout.components)
    for split in splits if several else [""]:
        part = frame.loc[frame["split"] == split] if several else frame
        if part.loc[~part["method"].isin(REFERENCES)].empty:
            continue
        alone = not several or len(splits) == 1
        table = grids.render(layout, part, beside, command)
        title = layout.caption if alone else f"{layout.caption}, {split_label(split)}"
        stem = layout.table if layout.sweeps else f"{frame['benchmark'].iloc[0]}_{layout.axis}"
        name = stem if alone else f"{stem}-{split}"
        yield Sheet(name, title, layout, table, numbers(layout, part, beside))
