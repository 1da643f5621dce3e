"""Tables of texts: chosen settings, every seed, trials without a result, reference models."""

import math
from typing import Any

import pandas as pd

from analysis import labels
from analysis.labels import DASH, describe_method, format_forget_split, format_settings
from analysis.stats.significance import KS_COLUMNS, ROW_RESAMPLE_COUNT
from analysis.stats.sweep_results import SHORT_NAMES, STUDY_KEY_COLUMNS, SweepResults, list_varied_settings
from analysis.tables.printing import format_number
from trainables.storage.file_names import EVALUATED_STATUSES

MISSING_HALF_METRICS_TEXT = "metrics on either half of the evaluation rows, which the selection rule asks for"
SEEDS_CAPTION = (
    f"95% of rows: percentile bootstrap interval of utility over {ROW_RESAMPLE_COUNT:,} resamples of the "
    "evaluation rows, which says nothing about other seeds. On TOFU, KS D: the distance between the two models' truth "
    "ratios, over n rows of each."
)
ATTACKS_CAPTION = (
    "What an attack brings back of what was removed, by extraction strength, "
    f"over the n attacked seeds; {DASH}: hardly anything was removed, or not attacked. docs/measuring.md explains them."
)
NOISE_CAPTION = "In brackets: the lowest and highest of the retain models, each against the others (docs/measuring.md)."


def format_configuration_value(value: Any) -> str:
    """Return a setting as a person writes it; a dash where there is none."""
    if isinstance(value, (list, dict)):
        return str(value)
    return DASH if pd.isna(value) else f"{value:.12g}" if isinstance(value, float) else str(value)


def tabulate_chosen_settings(results: SweepResults) -> pd.DataFrame:
    """Return what each row of the main table was run with and picked from."""
    runs, goals, other = results.runs, results.goals, list_varied_settings(results.runs)
    keeps = f"Keeps {results.rule.share:.0%} of {goals.retention.short}"
    members = runs.drop_duplicates("configuration").set_index("configuration")
    rows = []
    for row in results.chosen.rename(columns=SHORT_NAMES).to_dict("records"):
        member = members.loc[row["configuration"]]
        known = row["bar"] > 0 and row["original"] > 0
        share = row[goals.retention.metric] / row["original"] if known else math.nan  # on the rows that are reported
        rows.append(
            {
                "Split": row["split"],
                **format_settings(row),
                **{column: str(member[column]) for column in other},
                "Seeds": row["seeds"],
                "n of planned": f"{row['n']} of {row['planned']}",
                "Chosen from": f"{row['settings']}",
                keeps: f"{'yes' if row['kept'] else 'no'} ({share:.1%})" if known else DASH,
                "chosen_step": row["chosen_step"] or DASH,
                "Trial": row["id"],
            }
        )
    columns = ["Split", "Method", "gamma", "tau", "strength", *other, "chosen_step", "Seeds"]
    columns += ["n of planned", "Chosen from", keeps, "Trial"]
    return _hide_unused(pd.DataFrame(rows, columns=columns, dtype="str"))


def tabulate_recovered_shares(points: pd.DataFrame) -> pd.DataFrame:
    """Return what each attack's last step brought back of each chosen setting (`SweepResults.attack_recovery`)."""
    rows, last = [], points["step"] == points.groupby("attack")["step"].transform("max")
    for (split, method, rectifier), own in points.loc[last].groupby(["split", "method", "rectifier"], sort=False):
        row = {"Split": format_forget_split(str(split)), "Method": describe_method(str(method), str(rectifier))}
        row["n"] = f"{own['attacked'].max()}"
        for one in own.to_dict("records"):
            spread = "" if pd.isna(one["share_sd"]) else f" ± {100 * one['share_sd']:.0f}"
            of = f" (n = {one['n']})" if one["n"] != own["attacked"].max() else ""
            row[one["title"]] = DASH if pd.isna(one["share"]) else f"{100 * one['share']:.0f}{spread} %{of}"
        rows.append(row)
    return pd.DataFrame(rows).fillna(DASH)


def tabulate_retrain_noise(noise: pd.DataFrame) -> pd.DataFrame:
    """Return chosen settings beside the bands of retain models of several seeds."""
    rows = []
    for row in noise.to_dict("records"):
        shown = {"Split": format_forget_split(row["split"]), "Method": describe_method(row["method"], row["rectifier"])}
        for name, title in (("utility", "MU"), ("quality", "FQ, pooled"), ("klom", "KLoM")):
            shown[title] = f"{row[name]:.4g} ({row[f'{name}_low']:.4g} to {row[f'{name}_high']:.4g})"
        rows.append(shown | {"Within": "yes" if row["within"] else "no", "n": f"{row['n']} of {row['models']}"})
    return pd.DataFrame(rows)


def tabulate_seeds(results: SweepResults) -> pd.DataFrame:
    rows = []
    for row in results.chosen_values.to_dict("records"):
        line = {"Split": format_forget_split(row["split"]), **format_settings(row), "Seed": f"{row['seed']:g}"}
        for goal in results.goals.all_goals:
            line[goal.short] = format_number(row[goal.metric])
            if goal.metric == "forget_quality":
                line["KS D"] = format_number(row[KS_COLUMNS[0]], ".3f")
                line["n"] = format_number(row[KS_COLUMNS[1]], ".0f")
        ends = f"{format_number(row['low'])} to {format_number(row['high'])}"
        rows.append(line | {"95% of rows": DASH if pd.isna(row["low"]) else ends, "Trial": row["id"]})
    return _hide_unused(pd.DataFrame(rows, dtype="str"))


def tabulate_setting_importance(frame: pd.DataFrame, goals: labels.Goals) -> pd.DataFrame:
    """Return `measure_setting_importance` as texts: one row for each study and setting, one column for each goal."""
    rows: list[dict[str, Any]] = []
    groups: Any = frame.groupby([*STUDY_KEY_COLUMNS, "setting"], sort=False)
    for (split, method, rectifier, setting), part in groups:
        shares = dict(zip(part["metric"], part["importance"], strict=True))
        row = {"Split": format_forget_split(split), "Method": describe_method(method, rectifier), "Setting": setting}
        for goal in goals.all_goals:
            row[goal.short] = f"{shares[goal.metric]:.0%}" if goal.metric in shares else DASH
        rows.append(row | {"Settings": f"{part['settings'].max()}", "order": -max(shares.values())})
    listed = pd.DataFrame(rows).sort_values(["Split", "Method", "order"], kind="stable")
    return listed.drop(columns="order").astype("str")


def tabulate_trials(results: SweepResults) -> pd.DataFrame:
    """Return every trial with the settings that vary, its goals and status."""
    columns = ["split", "method", "rectifier", "gamma", "tau", "strength", *list_varied_settings(results.runs)]
    columns += [*results.goals.metrics, results.goals.removal_goal.metric, "seed", "status", "id"]
    trials: Any = results.runs.rename(columns=SHORT_NAMES)[list(dict.fromkeys(columns))]
    return trials.assign(method=trials["method"].map(labels.method_label, na_action="ignore"))


def tabulate_unusable_trials(results: SweepResults) -> pd.DataFrame:
    """Return every trial without a usable result, and why; those that have not run last."""
    rows, runs = [], results.runs.rename(columns=SHORT_NAMES)
    for trial in runs.sort_values("status", key=lambda column: column == "missing", kind="stable").to_dict("records"):
        lacking = [goal.short for goal in results.goals.all_goals if pd.isna(trial[goal.metric])]
        cause = "no message" if pd.isna(trial["error.message"]) else trial["error.message"]
        if trial["status"] == "missing":
            cause = "not run yet, running or interrupted; the command that started it, with --resume, runs it"
        elif trial["status"] in EVALUATED_STATUSES:
            if not lacking:
                continue
            halved = results.rule.halves and not trial["halves"]
            cause = f"{trial['status']} without {MISSING_HALF_METRICS_TEXT if halved else labels.join_names(lacking)}"
        rows.append(
            {
                "Trial": trial["id"],
                "Split": format_configuration_value(trial["split"]),
                **format_settings(trial),
                "Seed": format_configuration_value(trial["seed"]),
                "Status": trial["status"].replace("_", " "),
                "Cause": cause,
            }
        )
    columns = ["Trial", "Split", "Method", "gamma", "tau", "strength", "Seed", "Status", "Cause"]
    return _hide_unused(pd.DataFrame(rows, columns=columns, dtype="str"))


def _hide_unused(frame: pd.DataFrame) -> pd.DataFrame:
    settings = ("gamma", "tau", "strength", "chosen_step")
    return frame.drop(columns=[name for name in settings if name in frame and set(frame[name]) <= {DASH}])


def tabulate_reference_models(models: pd.DataFrame, goals: labels.Goals) -> pd.DataFrame:
    numbers = {column.metric: column.head for column in goals.columns}
    names = {"split": "Split", "role": "Role", **numbers, "model.path": "Model"}
    names |= {"model.fingerprint": "Fingerprint", "evaluation": "Evaluation", "status": "Status"}
    formats = {name: format_number if name in numbers else format_configuration_value for name in names}
    return pd.DataFrame({names[name]: [formats[name](value) for value in models[name]] for name in names}, dtype="str")
