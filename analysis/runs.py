"""A sweep's trials and reference models as pandas frames, read from storage and nowhere else.

Storage is the truth: `sweeps/NAME-HASH.json` lists trials and references, `trials/ID/result.json` holds a trial's
outcome, `shared/evaluations/ID/result.json` a reference model's metrics.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pandas as pd

log = logging.getLogger(__name__)

SWEEP_FILE = re.compile(r"(?P<name>.+)-(?P<hash>[0-9a-f]{8})")
FIRST = ["id", "status", "method", "rectifier.name", "rectifier.gamma", "rectifier.tau", "benchmark.split", "seed"]
FIRST += ["strength", "forget_quality", "model_utility", "relative_change", "seconds"]
BASE = ["id", "status", "started", "direction", "commit", "dirty"]
TEXT = ["error.kind", "error.message", "error.step", "started", "direction", "commit", "dirty"]
NUMERIC = ["rectifier.gamma", "rectifier.tau", "strength", "seed", "forget_quality", "model_utility"]
NUMERIC += ["relative_change", "seconds"]
STRENGTHS = ["task_vector.stg", "task_vector.strength"]


class InputError(ValueError):
    """A sweep name or a storage that cannot be used; the message says what was given, what is there and what to do."""


class DamagedFileError(ValueError):
    """A file of the storage that is not what it should be; the message names it."""


@dataclass(frozen=True)
class Sweep:
    """What `sweeps/NAME-HASH.json` says."""

    name: str
    hash: str
    title: str
    created: datetime
    command: str
    strategy: str
    trials: tuple[str, ...]
    references: tuple[dict[str, str], ...]

    @property
    def label(self) -> str:
        """Return NAME-HASH, which names this sweep and no other."""
        return f"{self.name}-{self.hash}"


def storage_folder(storage: str | Path = "runs") -> Path:
    """Return the folder that a storage URI names: a path or a `file://` address. InputError where it is no folder."""
    text = str(storage)
    address = urlparse(text)
    if "://" in text and address.scheme != "file":
        raise InputError(f"--storage {text}: reports read a folder or a file:// address; copy the storage to one first")
    folder = Path(unquote(address.path)) if address.scheme == "file" else Path(text)
    if not folder.is_dir():
        raise InputError(
            f"--storage {text}: there is no such folder; give the one that `python -m platform.sweep` wrote to"
        )
    return folder


def find_sweep(name: str, storage: str | Path = "runs") -> Sweep:
    """Return the sweep called NAME or NAME-HASH; of several hashes the newest by `created`, saying so on stderr.

    InputError, with the closest match and what is there, where no sweep has that name.
    """
    folder = storage_folder(storage) / "sweeps"
    files = {path.stem: path for path in sorted(folder.glob("*.json")) if SWEEP_FILE.fullmatch(path.stem)}
    if name in files:
        return _sweep(files[name])
    found = [_sweep(path) for stem, path in files.items() if _name(stem) == name]
    if not found:
        raise InputError(_unknown(name, files, storage))
    found.sort(key=lambda sweep: (sweep.created, sweep.hash))
    if len(found) > 1:
        others = ", ".join(sweep.label for sweep in reversed(found[:-1]))
        log.warning("%s has %d sweeps: taking the newest, %s (others: %s)", name, len(found), found[-1].label, others)
    return found[-1]


def _name(stem: str) -> str:
    match = SWEEP_FILE.fullmatch(stem)
    return match["name"] if match else stem


def _unknown(name: str, stems: Iterable[str], storage: str | Path) -> str:
    stems = sorted(stems)
    if not stems:
        return f"NAME {name}: storage {storage} holds no sweep yet; start one with `python -m platform.sweep NAME`"
    known = sorted({*stems, *map(_name, stems)})
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"NAME {name}: storage {storage} holds no such sweep; {hint}there are: {', '.join(stems)}"


def _sweep(path: Path) -> Sweep:
    try:
        data = _read(path, ("name", "hash", "created", "trials"))
        created = datetime.fromisoformat(data["created"])
    except (ValueError, TypeError) as damage:
        message = f"sweeps/{path.name} cannot be used: {damage}; run the sweep again or name another as NAME-HASH"
        raise InputError(message) from damage
    return Sweep(
        name=data["name"],
        hash=data["hash"],
        title=data.get("title") or data["name"],
        created=created if created.tzinfo else created.replace(tzinfo=UTC),
        command=data.get("command") or f"python -m platform.sweep {data['name']}",
        strategy=data.get("strategy") or "unknown",
        trials=tuple(data["trials"]),
        references=tuple(data.get("references") or ()),
    )


def _read(path: Path, fields: Iterable[str]) -> dict[str, Any]:
    """Return a JSON object; FileNotFoundError where there is none, DamagedFileError where it lacks its fields."""
    place = "/".join(path.parts[-3:])
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{place} is damaged: {error}") from error
    if not isinstance(data, dict):
        raise DamagedFileError(f"{place} is damaged: not a JSON object")
    lacking = [field for field in fields if field not in data]
    if lacking:
        raise DamagedFileError(f"{place} is damaged: no field {', '.join(lacking)}")
    return data


def load(name: str, storage: str | Path = "runs") -> pd.DataFrame:
    """Return one row a trial of the sweep, in the sweep's order, failures and missing ones included.

    Columns: id, status (finished, failed, diverged, out_of_memory; missing without result.json; damaged where it
    cannot be read), seconds, the configuration under its dotted paths (`method`, `rectifier.gamma`, ...), the metrics
    under their names (`forget_quality` is ln p), `error.*`, `steps`, `skipped`, `versions.*`, `topology.*`, and
    `configuration`: the settings apart from the seed as canonical JSON, equal for trials that differ in the seed only;
    `strength`: of a task vector, TRU's stg or TV's strength; `calibrated`: what UWC found, None where not asked for.
    """
    sweep = find_sweep(name, storage)
    folder = storage_folder(storage) / "trials"
    results = [_result(folder / trial, trial) for trial in sweep.trials]
    configs = [result.get("config") or {} for result in results]
    base = pd.DataFrame([_base(result) for result in results], columns=BASE)
    parts = [base, _flat(configs), _flat([result.get("metrics") or {} for result in results])]
    for part in ("error", "versions", "topology"):
        parts.append(_flat([{part: result[part]} if result.get(part) else {} for result in results]))
    parts.append(pd.DataFrame([_counts(result) for result in results], index=base.index))
    frame = pd.concat(parts, axis=1)
    frame["configuration"] = [canonical(config) for config in configs]
    frame["calibrated"] = pd.Series([result.get("calibration") for result in results], index=frame.index, dtype=object)
    frame["strength"] = frame.reindex(columns=STRENGTHS).astype(float).bfill(axis=1).iloc[:, 0]
    frame = _numeric(frame.reindex(columns=list(dict.fromkeys([*FIRST, *frame.columns, *TEXT]))))
    return frame.astype({"id": "str", "status": "str"})


def _result(folder: Path, trial: str) -> dict[str, Any]:
    try:
        result = _read(folder / "result.json", ("id", "status", "config"))
        if result["id"] != trial:
            raise DamagedFileError(f"trials/{trial}/result.json is damaged: it is the result of trial {result['id']}")
        return result
    except FileNotFoundError:
        return {"id": trial, "status": "missing", "config": _configuration(folder)}
    except DamagedFileError as damage:
        log.warning("%s", damage)
        error = {"kind": "damaged", "message": str(damage)}
        return {"id": trial, "status": "damaged", "config": _configuration(folder), "error": error}


def _configuration(folder: Path) -> dict[str, Any]:
    """Return what config.json says of a trial without a result; nothing where it was never started."""
    try:
        return _read(folder / "config.json", ("method",))
    except FileNotFoundError:
        return {}
    except DamagedFileError as damage:
        log.warning("%s", damage)
        return {}


def _base(result: dict[str, Any]) -> dict[str, Any]:
    return {field: result.get(field) for field in BASE}


def _counts(result: dict[str, Any]) -> dict[str, Any]:
    seconds, training = result.get("seconds") or {}, result.get("training") or {}
    return {
        "seconds": seconds.get("total"),
        "seconds.training": seconds.get("training"),
        "seconds.evaluation": seconds.get("evaluation"),
        "steps": training.get("steps"),
        "skipped": training.get("skipped"),
    }


def _flat(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return nested records as columns with dotted names, one row a record; a null beside nested records is none."""
    frame = pd.json_normalize(records).reindex(range(len(records)))
    nested = {str(column).rpartition(".")[0] for column in frame}
    return frame.drop(columns=[column for column in frame if column in nested])


def _numeric(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with its core columns as numbers; null, infinite and not-a-number become NaN."""
    numbers = frame[NUMERIC].apply(pd.to_numeric, errors="coerce").astype(float)
    return frame.assign(**numbers.where(np.isfinite(numbers)))


def canonical(config: dict[str, Any]) -> str | None:
    """Return the settings apart from the seed as canonical JSON, None for an empty configuration.

    Where a fingerprint names a content its path is left out: a moved folder changes no configuration. So are a task
    vector and a calibration that are not asked for: results from before there were any are equal to later ones.
    """
    settings = {key: _content(value) for key, value in config.items() if key != "seed" and not _unasked(key, value)}
    return json.dumps(settings, sort_keys=True) if settings else None


def _unasked(setting: str, value: Any) -> bool:
    return (setting == "task_vector" and value is None) or (setting == "calibration" and not value["targets"])


def _content(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    located = ("path", "data") if value.get("fingerprint") else ()
    return {key: _content(item) for key, item in value.items() if key not in located}


def settings(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the configurations of `runs`, one row each under dotted paths, indexed by their canonical JSON."""
    texts = sorted(runs["configuration"].dropna().unique())
    return _flat([json.loads(text) for text in texts]).set_axis(pd.Index(texts, dtype="str"), axis=0)


def references(name: str, storage: str | Path = "runs") -> pd.DataFrame:
    """Return one row a reference model and split: role (original, retain), split, evaluation, status, model, metrics.

    The retain model's missing forget quality is 0: its KS test against itself has p = 1 by definition.
    """
    folder = storage_folder(storage) / "shared" / "evaluations"
    found = find_sweep(name, storage).references
    results = [_evaluation(folder / item["evaluation"] / "result.json") for item in found]
    base = pd.DataFrame(found, columns=["role", "split", "evaluation"], dtype="str")
    base["status"] = [result["status"] for result in results]
    models = _flat([{"model": result.get("model") or {}} for result in results])
    frame = pd.concat([base, models, _flat([result.get("metrics") or {} for result in results])], axis=1)
    core = ["model.path", "model.fingerprint", "forget_quality", "model_utility"]
    frame = frame.reindex(columns=list(dict.fromkeys([*base.columns, *core, *frame.columns])))
    for metric in ("forget_quality", "model_utility"):
        frame[metric] = frame[metric].astype(float)
    itself = (frame["role"] == "retain") & (frame["status"] == "finished") & frame["forget_quality"].isna()
    frame.loc[itself, "forget_quality"] = 0.0
    return frame.sort_values(["split", "role"], ignore_index=True)


def _evaluation(path: Path) -> dict[str, Any]:
    try:
        return _read(path, ("metrics",)) | {"status": "finished"}
    except FileNotFoundError:
        return {"status": "missing"}
    except DamagedFileError as damage:
        log.warning("%s", damage)
        return {"status": "damaged"}
