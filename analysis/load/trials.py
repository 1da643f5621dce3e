"""A storage, a sweep in it, and its trials and reference models as pandas frames."""

import json
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow

from analysis.labels import Goals, format_setting_value, list_goals_of_benchmark, takes_setting
from trainables.benchmarks import selection
from trainables.common.errors import InputError
from trainables.common.regular_files import read_parquet
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.config.settings import Benchmark, Selection
from trainables.config.trial import EARLIER_TRIAL_PREFIX, drop_fingerprinted_paths, remove_planning_resources
from trainables.storage import opening
from trainables.storage.file_names import CONFIG, EVALUATED_STATUSES, RESULT
from trainables.storage.folder_storage import Storage, StoredConfig, read_validated_json
from trainables.storage.sweep_file import RETRAINED, SweepFile, find_sweeps_by_name

log = logging.getLogger(__name__)

FIRST_COLUMNS = ["id", "status", "method", "rectifier.name", "rectifier.gamma", "rectifier.tau", "benchmark.split"]
FIRST_COLUMNS += ["seed", "strength"]
TOP_FIELDS = ["id", "status", "started", "direction", "commit", "dirty", "code", "chosen_step"]
TEXT_FIELDS = ["error.kind", "error.message", "error.step", *TOP_FIELDS[2:-1], "benchmark.name"]
NUMBER_FIELDS = ["rectifier.gamma", "rectifier.tau", "strength", "seed", "relative_change", "seconds", "chosen_step"]
NESTED_FIELDS = {
    "seconds": ("seconds", "total"),
    "seconds.training": ("seconds", "training"),
    "seconds.evaluation": ("seconds", "evaluation"),
    "steps": ("training", "steps"),
    "skipped": ("training", "skipped"),
}
"""Columns, and where in result.json they are."""
STRENGTH_COLUMNS = ["task_vector.stg", "task_vector.strength"]
CHOICE_VALUE_COLUMNS = ["choice.removal", "choice.utility"]
"""What the selection rule goes by, more being better: of one half of the rows where it asks for halves."""
UWC_MIXTURE_COLUMNS = ["id", "target", "goal", "weight", "model_utility", "forget_quality", "reached", "monotone"]
CODE_AND_VERSION_COLUMNS = ("code", "versions.torch", "versions.transformers", "versions.deepspeed")
"""Columns of what may change a trial's numbers beside its configuration."""
WEIGHT_CHANGE = "relative_change"
"""The metric that rests on no evaluation rows."""


def open_storage(storage: str | Path | Storage = "runs") -> Storage:
    """Return the storage at a path or address, its working copy refreshed; an open one as it is. Raise InputError."""
    if isinstance(storage, Storage):
        return storage
    store = opening.open_storage(str(storage), writable=False)
    if not store.root.is_dir():
        raise InputError(f"--storage {storage}: no such folder; give the one that `python -m platform.sweep` wrote to")
    store.download_sweeps_and_results()
    return store


def find_sweep(name: str, storage: str | Path | Storage = "runs") -> SweepFile:
    """Return the sweep NAME or NAME-HASH; of several hashes the newest, saying so on stderr. Raise InputError."""
    store = open_storage(storage)
    newest, *others = find_sweeps_by_name(name, store)
    if others:
        labels = ", ".join(sweep.label for sweep in others)
        log.warning("%s has %d sweeps: taking the newest, %s (others: %s)", name, len(others) + 1, newest.label, labels)
    store.download_sweeps_and_results(newest.trials)
    return newest


def read_trial_parquet(store: Storage, path: Path, columns: Collection[str] = ()) -> pyarrow.Table:
    """Return `columns` of a trial's or evaluation's file; empty without it, and with a warning of a damaged one."""
    store.fetch(path)
    try:
        return read_parquet(path, columns)
    except FileNotFoundError:
        pass
    except (OSError, InputError) as damage:
        log.warning("%s is damaged: %s", path.relative_to(store.root), damage)
    return pyarrow.table({})


def load(name: str, storage: str | Path | Storage = "runs") -> pd.DataFrame:
    """Return one row for each trial of the sweep, failed and missing ones too; docs/guide.md lists the columns.

    Raise InputError if it has none: an Optuna study lists a trial when that begins.
    """
    store = open_storage(storage)
    sweep = find_sweep(name, store)
    if not sweep.trials:
        raise InputError(f"sweep {sweep.label} has no trial yet; python -m platform.status {sweep.label} shows it")
    results = [_read_result(store, trial) for trial in sweep.trials]
    configs = [result.get("config") or {} for result in results]
    goals = list_goals_of_benchmark(sweep.benchmark or Benchmark().name)
    base = pd.DataFrame([{field: result.get(field) for field in TOP_FIELDS} for result in results], columns=TOP_FIELDS)
    made = [{part: one[part] for part in ("error", "versions", "topology") if one.get(part)} for one in results]
    parts = [base, _flat(configs), _measured(results, goals, sweep.selection), _flat(made)]
    counts = {name: [(one.get(part) or {}).get(key) for one in results] for name, (part, key) in NESTED_FIELDS.items()}
    frame = pd.concat([*parts, pd.DataFrame(counts, index=base.index)], axis=1)
    frame["backbone"] = sweep.backbone
    frame["benchmark.name"] = [config["benchmark"]["name"] if config else goals.benchmark for config in configs]
    frame["configuration"] = [encode_configuration_without_seed(config) for config in configs]
    frame["calibrated"] = pd.Series([result.get("calibration") for result in results], index=frame.index, dtype=object)
    frame["strength"] = frame.reindex(columns=STRENGTH_COLUMNS).astype(float).bfill(axis=1).iloc[:, 0]
    rectifiers = frame.reindex(columns=["rectifier.name", "rectifier.tau"])
    taus = zip(rectifiers["rectifier.name"], rectifiers["rectifier.tau"], strict=True)
    frame["clipping"] = [format_setting_value(tau) if takes_setting(str(name), "tau") else "" for name, tau in taus]
    first = [*FIRST_COLUMNS, *goals.metrics, WEIGHT_CHANGE, "seconds"]
    frame = _numeric(frame.reindex(columns=list(dict.fromkeys([*first, *frame.columns, *TEXT_FIELDS]))), NUMBER_FIELDS)
    frame = frame.astype({"id": "str", "status": "str"}).copy()  # in one piece, or pandas warns
    # Starts of one sweep, one of them with `calibration.targets`, leave trials that trained the same model. Of such
    # twins an evaluated one counts, and of several the calibrated one.
    rank = 2 * evaluated(frame) + frame["calibrated"].notna()
    known = frame.loc[frame["configuration"].notna()].assign(rank=rank)
    twins = known.sort_values("rank", ascending=False, kind="stable").duplicated(["configuration", "seed"])
    return frame.drop(index=twins.index[twins]).reset_index(drop=True)


def describe_mixed_versions(runs: pd.DataFrame) -> list[str]:
    """Return a sentence where trials were made by several codes or versions; a custom method's code is its own."""
    custom = [row.name for row in (*METHODS.values(), *RECTIFIERS.values()) if row.custom]
    own = runs[["method", "rectifier.name"]].isin(custom).any(axis="columns")
    known = runs.reindex(columns=list(CODE_AND_VERSION_COLUMNS)).assign(code=runs["code"].mask(own))
    kinds = {name.removeprefix("versions."): known[name].dropna().unique() for name in CODE_AND_VERSION_COLUMNS}
    parts = [f"{name} {', '.join(sorted(found))}" for name, found in kinds.items() if len(found) > 1]
    codes = runs.loc[own].dropna(subset="code").groupby(["method", "rectifier.name"])["code"].unique()
    parts += [
        f"code {', '.join(sorted(found))} of {method} with {name}, whose own file was edited or runs on other code"
        for (method, name), found in codes.items()
        if len(found) > 1
    ]
    return [f"Trials were made by several codes or versions, and may differ by it: {'; '.join(parts)}."] * bool(parts)


def evaluated(runs: pd.DataFrame) -> pd.Series:
    """Return which trials came to their evaluation: finished ones, and those whose training stopped at its bar."""
    return pd.Series(runs["status"].isin(EVALUATED_STATUSES))


def _measured(documents: list[dict[str, Any]], goals: Goals, rule: Selection) -> pd.DataFrame:
    """Return the metrics that are reported of results or evaluations: of a rule on halves those of the second half.

    Adds `removal` (the mean of several goals), `choice.removal`, `choice.utility` (what the rule goes by) and `halves`.
    """
    reported = [dict(selection.pick_half_metrics(document, rule, reported=True)) for document in documents]
    frame = _flat(reported)
    if rule.halves:
        frame[WEIGHT_CHANGE] = [(document.get("metrics") or {}).get(WEIGHT_CHANGE) for document in documents]
    frame = frame.reindex(columns=list(dict.fromkeys([*frame.columns, *goals.metrics])))
    tried = [
        selection.make_candidate("", goals.benchmark, selection.pick_half_metrics(document, rule))
        for document in documents
    ]
    frame["choice.removal"] = [one.removal if one else None for one in tried]
    frame["choice.utility"] = [one.utility if one else None for one in tried]
    frame["halves"] = [bool(document.get("halves")) for document in documents]
    frame = _numeric(frame, [*goals.metrics, *CHOICE_VALUE_COLUMNS])
    if len(goals.removals) > 1:
        frame[goals.removal_goal.metric] = frame[[goal.metric for goal in goals.removals]].mean(axis=1, skipna=False)
    return frame


def _read_result(store: Storage, trial: str) -> dict[str, Any]:
    if result := store.result(trial):
        return result
    config = read_validated_json(store.trial(trial) / CONFIG, StoredConfig) or {}
    found = {"id": trial, "status": "missing", "config": config}
    if store.has_result(trial):
        message = f"trials/{trial}/{RESULT} cannot be read"
        log.warning("%s; --resume runs its trial again", message)
        found |= {"status": "damaged", "error": {"kind": "damaged", "message": message}}
    return found


def _flat(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return nested records as columns with dotted names, one row for each; a null beside nested records is none."""
    frame = pd.json_normalize(records).reindex(range(len(records)))
    nested = {str(column).rpartition(".")[0] for column in frame}
    return frame.drop(columns=[column for column in frame if column in nested])


def _numeric(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Return the frame with these columns as numbers; null, infinite and not-a-number become NaN."""
    numbers = frame[columns].apply(pd.to_numeric, errors="coerce").astype(float)
    return frame.assign(**numbers.where(np.isfinite(numbers)))


def encode_configuration_without_seed(config: dict[str, Any]) -> str | None:
    """Return the settings apart from the seed as canonical JSON, None for an empty configuration.

    As in a trial's id, places with a fingerprint and what changes no number are left out. So are calibration and
    observations, and the model that an earlier request left: each seed has its own.
    """
    training, target = config.get("training") or {}, config.get("target") or {}
    left_out = {
        "seed": True,
        "calibration": True,
        "observe": training.get("stop_above") is None,  # a bar on the retain loss looks at what it measures
        "target": str(target.get("fingerprint")).startswith(EARLIER_TRIAL_PREFIX),
        "selection": not training.get("eval_every"),  # a trial's own rule chooses among its evaluations
    }
    chosen = drop_fingerprinted_paths({key: value for key, value in config.items() if not left_out.get(key)})
    chosen.get("selection", {}).pop("seeds", None)
    remove_planning_resources(chosen)
    return json.dumps(chosen, sort_keys=True) if chosen else None


def settings(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the configurations of `runs`, one row each under dotted paths, indexed by their canonical JSON."""
    texts = sorted(runs["configuration"].dropna().unique())
    return _flat([json.loads(text) for text in texts]).set_axis(pd.Index(texts, dtype="str"), axis=0)


def references(name: str, storage: str | Path | Storage = "runs") -> pd.DataFrame:
    """Return one row for each model (original, retain, baseline) and split: its evaluation, status, model, metrics.

    The retain model's missing FQ is 0: its KS test against itself has p = 1.
    """
    store = open_storage(storage)
    sweep = find_sweep(name, store)
    goals = list_goals_of_benchmark(sweep.benchmark or Benchmark().name)
    listed = {(one.role, one.split, one.role == RETRAINED and one.evaluation): one for one in sweep.references}.values()
    results = [_read_evaluation(store, item.evaluation) for item in listed]
    found = [item.model_dump() for item in listed]
    base = pd.DataFrame(found, columns=["role", "split", "evaluation"], dtype="str")
    base["status"] = [result["status"] for result in results]
    models = _flat([{"model": result.get("model") or {}} for result in results])
    frame = pd.concat([base, models, _measured(results, goals, sweep.selection)], axis=1)
    core = ["model.path", "model.fingerprint", *goals.metrics]
    frame = frame.reindex(columns=list(dict.fromkeys([*base.columns, *core, *frame.columns])))
    if "forget_quality" in goals.metrics:
        itself = (frame["role"] == "retain") & (frame["status"] == "finished") & frame["forget_quality"].isna()
        frame.loc[itself, "forget_quality"] = 0.0
    return frame.sort_values(["split", "role"], ignore_index=True)


def tabulate_uwc_mixtures(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each calibrated trial and target of UWC: its mixture with the original model, `id` first.

    `unmixed`: the mixture is the trial's own model (w = 1), and keeps more than the target.
    """
    known = runs.loc[evaluated(runs) & runs["calibrated"].notna(), ["id", "calibrated"]].to_numpy()
    rows = [{"id": trial, "monotone": one["monotone"], **target} for trial, one in known for target in one["targets"]]
    frame = pd.DataFrame(rows).reindex(columns=UWC_MIXTURE_COLUMNS)
    return frame.assign(unmixed=(frame["weight"] == 1) & (frame["model_utility"] > frame["goal"]))


def _read_evaluation(store: Storage, key: str) -> dict[str, Any]:
    found = store.read_evaluation(key)
    if found is not None:
        return found | {"status": "finished"}
    if not (path := store.evaluation(key) / RESULT).exists():
        return {"status": "missing"}
    log.warning("%s cannot be read", path.relative_to(store.root))
    return {"status": "damaged"}
