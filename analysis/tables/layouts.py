"""The layouts in which `render` prints tidy frames: the paper's tables, and the report's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.labels import DASH, DECIMALS, REFERENCES, TASK_VECTORS, method_label
from analysis.load.goals import TOFU, Goals
from analysis.stats.results import Results
from analysis.stats.selection import rule_text
from analysis.tables.format import BOLD, Head
from analysis.tables.layout import CHECKS, Layout, Measure

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


def uwc_layout(method: str) -> Layout:
    """Return the layout of a method's UWC table; the paper has those of GA and NPO. MU is held equal, so never bold."""
    return Layout(
        table=f"tofu_uwc_{method}",
        caption=f"TOFU at equal utility (UWC): {method_label(method)}",
        measures=(Measure("forget_quality", "FQ ↑", 1, "highest"), Measure("model_utility", "MU ↑", 2, None)),
        methods=(method,),
        sweeps={"phi": "tofu_phi_uwc"},
        splits={split: f"{percent} Unlearning" for split, percent in PERCENT.items()},
        references={"original": "Original"},
        mixed=True,
        targets=(0.85, 0.9, 0.95),
        only=True,
    )


TOFU_UWC_GA, TOFU_UWC_NPO = uwc_layout("ga"), uwc_layout("npo")
LAYOUTS = {
    layout.table: layout
    for layout in (
        *(TOFU_MAIN, TOFU_RETAIN_FREE, WMDP, MUSE, WMDP_RMU),
        *(TOFU_TAU, TOFU_GAMMA, TOFU_ABLATION, TOFU_UWC_GA, TOFU_UWC_NPO),
    )
}
"""All of the paper's tables, by their names in `analysis.paper`."""


def main_layout(results: Results) -> Layout:
    """Return the layout of a report's main table: a row a method and under it those with a rectifier."""
    goals = results.goals
    splits = sorted({*results.runs["benchmark.split"].dropna(), *results.models["split"]})
    roles = [role for role in REFERENCES if role == "original" or goals.has_retain_model(splits)]
    return Layout(
        table="main",
        caption="Main table",
        measures=_goal_measures(goals),
        references={role: REFERENCES[role] for role in roles},
        report=True,
        notes=(BOLD["method"], rule_text(goals, results.rule)),
    )


def _goal_measures(goals: Goals) -> tuple[Measure, ...]:
    return tuple(Measure(column.metric, column.head, DECIMALS, column.best) for column in goals.columns)


def _strength(record: Mapping[Any, Any]) -> str:
    return DASH if pd.isna(record["strength"]) else f"{record['strength']:g}"


def _relative_change(record: Mapping[Any, Any]) -> str:
    return DASH if pd.isna(record["relative_change"]) else f"{record['relative_change']:.2%}"


RETAIN_FREE = Layout(
    table="retain_free",
    caption="Without retain data",
    measures=_goal_measures(TOFU),
    methods=TOFU_RETAIN_FREE.methods,
    rectifiers=("none",),
    compared="column",
    only=True,
    report=True,
    extras={"n": lambda record: f"{record['n']:g}", "strength": _strength, "change": _relative_change},
    exact=(("relative_change", "mean"), ("strength", "chosen")),
    notes=(
        f"Methods without retain data and without a rectifier; means over n seeds. {BOLD['column']} strength: stg of "
        "TRU, strength of TV, the best of each method by the report's rule. "
        "change: ‖θ - θ_org‖ / ‖θ_org‖, how far the weights moved.",
    ),
)
UWC = Layout(
    table="uwc",
    caption="At equal utility (UWC)",
    measures=(QUALITY, Measure("model_utility", "MU ↑", DECIMALS, None)),
    references={"original": REFERENCES["original"]},
    mixed=True,
    report=True,
    exact=(*(("seeds", check) for check in CHECKS), *(("weight", stat) for stat in ("mean", "sd", "n"))),
    notes=(
        "UWC mixes an unlearned model with the original one, w of the former and 1 - w of the latter, until MU is the "
        "given share of the original's; w is in the CSV. The settings are those of the main table, with and without "
        "GRU: chosen there by the uncalibrated FQ and MU. Bold: the better FQ of a pair, as printed.",
    ),
)
