"""The parts of a report on one sweep: each writes its files and returns the sections that the page shows."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis import paper
from analysis.figures import changes, training
from analysis.figures.style import list_measured_goals
from analysis.labels import DEFAULT_TABLE_DECIMALS, join_names
from analysis.load.trials import CHOICE_VALUE_COLUMNS
from analysis.report.page import SavedFigure, Section, save_frame_as_csv, save_picture
from analysis.stats.rectifier_comparison import RectifierComparison
from analysis.stats.retraining_noise import compare_with_retraining_noise
from analysis.stats.setting_importance import MIN_SETTINGS_FOR_IMPORTANCE, measure_setting_importance
from analysis.stats.sweep_results import SweepResults, join_sweep_frames
from analysis.tables import detail_tables, paper_tables
from analysis.tables.detail_tables import ATTACKS_CAPTION, NOISE_CAPTION, SEEDS_CAPTION
from analysis.tables.paper_tables import FilledTable
from analysis.tables.printing import PrintedTable
from analysis.tables.table_definitions import LAYOUTS

MAX_UNUSABLE_TRIALS_SHOWN = 50
IMPORTANCE_CAPTION = (
    "Share of each setting in what tells the best quarter of a study's settings in a goal from all of them "
    f"(PED-ANOVA, arXiv 2304.10255). Studies with fewer than {MIN_SETTINGS_FOR_IMPORTANCE} settings are left out."
)
PAPER_FIGURE_KINDS = {
    "pairs": (("tofu_main", "wmdp", "wmdp_rmu", "muse"), changes.tabulate_gru_pairs, changes.draw_gru_bar_pairs),
    "gamma": (("tofu_gamma",), partial(changes.tabulate_sensitivity, knob="gamma"), changes.draw_gamma_tau_sensitivity),
    "tau": (("tofu_tau",), partial(changes.tabulate_sensitivity, knob="tau"), changes.draw_gamma_tau_sensitivity),
}
"""Pictures of tidy frames: the paper's tables of the same, what lists their points, and what draws these."""


def save_figure_of_each_split(
    folder: Path, kind: str, points: pd.DataFrame, draw: Callable[[pd.DataFrame], Figure]
) -> list[SavedFigure]:
    """Write a picture for each split, `KIND-SPLIT`."""
    parts = [(str(split), rows.reset_index(drop=True)) for split, rows in points.groupby("split")]
    return [save_picture(folder, kind, f"{kind}-{split}", draw(rows), rows, split=split) for split, rows in parts]


def draw_paper_figures(frames: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, Figure, pd.DataFrame, str]]:
    """Yield kind, figure, points and goals of PAPER_FIGURE_KINDS, where sweeps' tidy frames, by label, have them."""
    for kind, (tables, list_points, draw) in PAPER_FIGURE_KINDS.items():
        frame = join_sweep_frames(frames, {name for table in tables for name in LAYOUTS[table].sweeps.values()})
        if len(frame) and len(points := list_points(frame)):
            yield kind, draw(points), points, join_names(goal.short for goal in list_measured_goals(frame))


def write_rectifier_figures(comparison: RectifierComparison, folder: Path) -> list[SavedFigure]:
    """Write every rectifier against none, where there are several; return a picture for each split."""
    if not comparison.has_several or comparison.differences.empty:
        return []
    keys = ["split", "method", "rectifier"]
    save_frame_as_csv(folder, "rectifiers", comparison.differences.merge(comparison.step_seconds, on=keys))
    draw = partial(changes.draw_rectifier_forest_plot, goals=comparison.goals)
    points = changes.list_forest_plot_points(comparison)
    return save_figure_of_each_split(folder, "rectifiers", points, draw)


def write_statistics_sections(results: SweepResults, folder: Path) -> list[Section]:
    """What attacks brought back, which settings matter, the noise of retraining, every seed: what there is of it."""
    sections = []
    attacked, noise = results.attack_recovery, compare_with_retraining_noise(results)
    shares = measure_setting_importance(results.runs)
    matters = partial(detail_tables.tabulate_setting_importance, goals=results.goals)
    for stem, frame, title, list_rows, caption in (
        ("attacks", attacked, "Does it last", detail_tables.tabulate_recovered_shares, ATTACKS_CAPTION),
        ("noise", noise, "Is it within the noise of retraining", detail_tables.tabulate_retrain_noise, NOISE_CAPTION),
        ("importance", shares, "Which setting matters", matters, IMPORTANCE_CAPTION),
        ("seeds", results.chosen_values, "Every seed", lambda _: detail_tables.tabulate_seeds(results), SEEDS_CAPTION),
    ):
        if len(frame):
            save_frame_as_csv(folder, stem, frame)
            sections.append(Section(title, (PrintedTable(list_rows(frame), (caption,)),)))
    return sections


def save_papers_tables_and_figures(
    sweeps: dict[str, SweepResults], folder: Path, both: bool, stem: str = ""
) -> tuple[list[FilledTable], list[SavedFigure]]:
    """Write into tables/ and figures/ what sweeps of one benchmark, by their labels, have of the paper's."""
    sheets = paper_tables.fill_paper_tables(sweeps, both)
    for sheet in sheets:
        sheet.save(folder / "tables")
    pictures = [
        save_picture(folder, kind, f"{stem}{kind}", figure, points, labels=labels)
        for kind, figure, points, labels in draw_paper_figures({label: one.tidy_frame for label, one in sweeps.items()})
    ]
    return sheets, pictures


def write_paper_layout_section(results: SweepResults, label: str, folder: Path, both: bool) -> list[Section]:
    """Return the paper's tables and figures, filled from runs of a sweep; `both`: with the paper's numbers."""
    sheets, drawn = save_papers_tables_and_figures({label: results}, folder, both)
    if not sheets and not drawn:
        return []
    text = f"Numbered and named as in {paper.CITATION}."
    if both:
        text += " Under each number the paper's, and the difference to it, where the paper has one."
    return [Section("In the paper's layout", [sheet.table for sheet in sheets], drawn, text)]


def write_training_figures(results: SweepResults, folder: Path) -> list[Section]:
    """Figures 1 and 7 of the paper, for each split that has several steps."""
    measured, pictures = training.load_chosen_trial_steps(results), []
    for kind, points, draw in (
        ("dynamics", training.tabulate_cosine_and_loss(measured), training.draw_cosine_and_loss),
        ("angles", training.tabulate_angles(measured), training.draw_angles),
    ):
        steps = points.groupby(["split", "method"])["step"].transform("nunique")
        pictures += save_figure_of_each_split(folder, kind, points.loc[steps.to_numpy() > 1], draw)
    return [Section("Along training", figures=pictures)] if pictures else []


def write_run_details_sections(results: SweepResults, folder: Path) -> list[Section]:
    """The chosen settings, all trials, those without a result, reference models, and versions."""
    runs, rule = results.runs, results.rule
    chosen, failures = detail_tables.tabulate_chosen_settings(results), detail_tables.tabulate_unusable_trials(results)
    save_frame_as_csv(folder, "chosen", chosen)
    save_frame_as_csv(folder, "failures", failures)
    hidden = ["configuration", "calibrated", *([] if rule.halves else [*CHOICE_VALUE_COLUMNS, "halves"])]
    hidden += ["chosen_step"] * bool(runs["chosen_step"].isna().all())
    save_frame_as_csv(folder, "trials", runs.drop(columns=hidden))
    every = detail_tables.tabulate_trials(results).round(dict.fromkeys(results.goals.metrics, DEFAULT_TABLE_DECIMALS))
    made_with = [*(str(name) for name in runs if str(name).startswith(("versions.", "topology."))), "commit", "dirty"]
    made = runs[made_with].dropna(how="all").map(detail_tables.format_configuration_value).drop_duplicates()
    more = len(failures) - MAX_UNUSABLE_TRIALS_SHOWN
    parts = (
        ("Chosen settings", chosen, "Chosen by the rule under the main table."),
        ("All trials", every.map(detail_tables.format_configuration_value), ""),
        (
            f"Trials without a usable result: {len(failures)}",
            failures.head(MAX_UNUSABLE_TRIALS_SHOWN),
            f"and {more} more (tables/failures.csv)" if more > 0 else "",
        ),
        ("Reference models", detail_tables.tabulate_reference_models(results.models, results.goals), ""),
        ("Versions and machines of the trials", made.T.reset_index(names="Setting"), ""),
    )
    return [Section(title, (PrintedTable(frame, (note,)),)) for title, frame, note in parts if len(frame)]
