"""Small invented sweeps on disk, for tests: gradient methods and all that can go wrong; task vectors and UWC.

A test module takes a sweep's fixtures by giving them its own names: `store = sweep_store.tiny_store`.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.load.trials import find_sweep
from analysis.stats.sweep_results import SweepResults, read_sweep_results
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import FILE_FORMAT_VERSION

NONE, GRU = {"name": "none", "gamma": None, "tau": None}, {"name": "gru", "gamma": 0.8, "tau": None}
SETTINGS = [NONE, GRU, GRU | {"gamma": 0.05, "tau": 1.0}]
# (method, place in SETTINGS) -> (FQ, MU) at seed 0 on forget05; seed 1 adds (2, 0.02), forget10 takes 10 off the FQ.
RESULTS = {
    ("ga", 0): (-22.0, 0.0),
    ("ga", 1): (-24.0, 0.10),
    ("ga", 2): (-5.0, 0.05),
    ("gd", 0): (-13.0, 0.80),
    ("gd", 1): (-9.0, 0.84),
    ("gd", 2): (-4.0, 0.70),
    ("npo", 0): (-7.0, 0.50),
    ("npo", 1): (-4.0, 0.60),
    ("npo", 2): (-5.0, 0.75),
}
ORIGINAL, RETAIN = 0.9, 0.88
ORIGINAL_FQ = -21.4
MODELS: dict[str, dict[str, Any]] = {
    "original": {"metrics": {"forget_quality": ORIGINAL_FQ, "model_utility": ORIGINAL}},
    "retain": {"metrics": {"forget_quality": None, "model_utility": RETAIN}},
}
# strength -> (FQ, MU, relative change) of TRU and TV at seed 0 on forget05.
STRENGTHS = {
    "tru": {4: (-20.0, 0.89, 0.01), 8: (-16.0, 0.85, 0.02), 12: (-10.0, 0.82, 0.03), 24: (-6.0, 0.4, 0.06)},
    "tv": {1: (-19.0, 0.87, 0.01), 10: (-12.0, 0.75, 0.03), 40: (-8.0, 0.2, 0.08)},
}
SHARES = (0.85, 0.9, 0.95)
DIVERGED = {"kind": "diverged", "message": "loss is <nan> at step 12", "step": 12}
VERSIONS = {"python": "3.11.7", "torch": "2.13.0"}


def write(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def write_trial(store: Path, trial: str, method: str = "ga", rectifier: dict[str, Any] = NONE, **given: Any) -> str:
    """Write one trial. Given may be `fq`, `mu`, `split`, `seed`, `status`, `error`, `lr`, `objective`, `chosen_step`;

    `strength` of a task vector, `change` (the relative one), `calibration` (UWC's, as in result.json);
    `benchmark` and its `metrics` in place of FQ and MU, `halves` (two such).
    """
    config = configuration(method, rectifier, given)
    write(store / "trials" / trial / "config.json", config)
    tofu = {"forget_quality": given.get("fq"), "model_utility": given.get("mu"), "forget_rows": 200}
    metrics = given.get("metrics", tofu)
    result = {
        "id": trial,
        "status": given.get("status", "finished"),
        "config": config,
        "metrics": metrics | ({"relative_change": given["change"]} if "change" in given else {}),
        **{field: given.get(field) for field in ("halves", "chosen_step", "error", "calibration")},
        "training": {"steps": 31, "skipped": 0},
        "seconds": {"total": 40.0, "training": 0.0 if "error" in given else 30.0, "evaluation": 10.0},
        "started": "2026-11-20T10:00:00Z",
        "versions": VERSIONS,
        "commit": "abc1234",
        "dirty": False,
        "topology": {"ranks": 1, "device": "cpu"},
        "direction": "d1ec7104aaaa" if "strength" in given else None,
    }
    write(store / "trials" / trial / "result.json", result)
    return trial


def configuration(method: str, rectifier: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the analysis reads of a trial's configuration."""
    return {
        "method": method,
        "rectifier": rectifier,
        "benchmark": {
            "name": given.get("benchmark", "tofu"),
            "data": "data",
            "split": given.get("split", "forget05"),
            "dialect": "paper",
            "fingerprint": "f00d",
        },
        "retain_evaluation": None,
        "objective": given.get("objective", {"preset": "paper", "retain_coefficient": None}),
        "task_vector": task_vector(method, given) if "strength" in given else None,
        "calibration": {"targets": list(SHARES) if given.get("calibration") else []},
        "training": {"lr": given.get("lr", 0.001), "epochs": 5},
        "seed": given.get("seed", 0),
    }


def task_vector(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task vector's settings: `stg` is TRU's strength, `strength` TV's."""
    strength = given["strength"]
    own = {"stg": strength, "strength": None} if method == "tru" else {"stg": None, "strength": strength}
    return own | {"steps": 5, "lr": 0.01, "batches": 20, "normalise": "whole", "optimizer": "sgd"}


def calibrated(fq: float, mu: float, **given: Any) -> dict[str, Any]:
    """Return what UWC finds on a line of FQ and a parabola of MU over w; `missed` names targets not reached."""

    def mixed(weight: float) -> dict[str, float]:
        utility, quality = ORIGINAL + (mu - ORIGINAL) * weight**2, ORIGINAL_FQ + (fq - ORIGINAL_FQ) * weight
        return {"weight": weight, "model_utility": utility, "forget_quality": quality}

    found = []
    for share in SHARES:
        weight = min(1.0, ((1 - share) * ORIGINAL / (ORIGINAL - mu)) ** 0.5)
        goal = {"target": share, "goal": share * ORIGINAL, "reached": share not in given.get("missed", ())}
        found.append({**mixed(weight), **goal, "evaluations": 7})
    weights = sorted({0.0, 0.25, 0.5, 0.75, 1.0, *(target["weight"] for target in found)})
    return {
        "original_model_utility": ORIGINAL,
        "monotone": given.get("monotone", True),
        "evaluations": [mixed(weight) for weight in weights],
        "targets": found,
    }


def write_vectors(store: Path) -> Path:
    """Write a sweep `vectors`: TRU and TV over their strengths, WGA, and GA and NPO with and without GRU, mixed.

    NPO misses 95 % at seed 1, and its MU is not monotone in w at seed 0.
    """
    trials = []
    for seed in (0, 1):
        rest = {"seed": seed, "change": 0.05}
        for method, points in STRENGTHS.items():
            for strength, (fq, mu, change) in points.items():
                values = {"fq": fq + seed, "mu": mu, "seed": seed, "strength": strength, "change": change}
                trials.append(write_trial(store, f"{len(trials):012x}", method, **values))
        for method, rectifier, fq, mu in (
            ("ga", NONE, -14.0, 0.0),
            ("ga", GRU, -9.0, 0.5),
            ("wga", NONE, -9.5, 0.44),
            ("npo", NONE, -7.0, 0.5),
            ("npo", GRU, -12.0, 0.8),
        ):
            doubtful = ({"monotone": False}, {"missed": (0.95,)})[seed] if method == "npo" else {}
            found = {} if method == "wga" else {"calibration": calibrated(fq + seed, mu, **doubtful)}
            values = {"fq": fq + seed, "mu": mu, **rest, **found}
            trials.append(write_trial(store, f"{len(trials):012x}", method, rectifier, **values))
    write_sweep(store, trials, name="vectors", digest="0dec0de5", splits=("forget05",))
    return store


def write_sweep(store: Path, trials: list[str], name: str = "tiny", digest: str = "0a1b2c3d", **given: Any) -> None:
    """Write a sweep's file, and evaluations of its reference models for the given splits.

    Given may be `selection`, `backbone`, `benchmark`, `created` of the sweep; `models`: role -> what an
    evaluation holds, TOFU's if left out.
    """
    references = []
    for split in given.get("splits", ("forget05", "forget10")):
        for role, found in given.get("models", MODELS).items():
            evaluation = f"{role}-{split}"
            model = {"path": f"models/{role}", "fingerprint": "beef"}
            write(store / f"shared/evaluations/{evaluation}/result.json", {"id": evaluation, "model": model, **found})
            references.append({"role": role, "split": split, "evaluation": evaluation})
    data = {
        "format": FILE_FORMAT_VERSION,
        "name": name,
        "hash": digest,
        "title": "Three methods on two splits",
        "created": given.get("created", "2026-11-20T09:00:00Z"),
        "command": f"python -m platform.sweep {name}",
        "commands": [f"python -m platform.sweep {name}"],
        "strategy": "grid",
        "trials": trials,
        "references": references,
    }
    data |= {field: given[field] for field in ("selection", "backbone", "benchmark") if field in given}
    write(store / "sweeps" / f"{name}-{digest}.json", data)


def make_sweep(store: Path, *trials: Mapping[str, Any], **given: Any) -> SweepResults:
    """Write trials, each by what `write_trial` takes, and their sweep, and return its results."""
    ids = [write_trial(store, f"{place:012x}", **one) for place, one in enumerate(trials)]
    write_sweep(store, ids, **given)
    return read(store)


def write_store(store: Path) -> Path:
    """Write the whole invented sweep: 36 trials, of which one failed, one diverged, one is missing."""
    trials = []
    for split, shift in (("forget05", 0), ("forget10", -10)):
        for (method, place), (fq, mu) in RESULTS.items():
            for seed in (0, 1):
                values = {"fq": fq + shift + 2 * seed, "mu": mu + 0.02 * seed, "split": split, "seed": seed}
                trial = f"{len(trials):012x}"
                trials.append(write_trial(store, trial, method, SETTINGS[place], **values))
    write_trial(store, trials[1], seed=1, status="failed", error={"kind": "failed", "message": "no <space> left"})
    write_trial(store, trials[34], "npo", SETTINGS[2], split="forget10", status="diverged", error=DIVERGED)
    (store / "trials" / trials[35] / "result.json").unlink()
    write_sweep(store, trials)
    return store


def read(store: Path) -> SweepResults:
    """Return the results of a store's only sweep."""
    (path,) = (store / "sweeps").glob("*.json")
    storage = Storage(store)
    return read_sweep_results(find_sweep(path.stem, storage), storage)


def grid(markdown: str) -> list[list[str]]:
    """Return the cells of a pipe table's lines, head and rule first."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture(scope="module")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def tiny_results(store: Path) -> SweepResults:
    return read(store)


@pytest.fixture(scope="module")
def vectors_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vectors(tmp_path_factory.mktemp("vectors"))


vectors_results = tiny_results


@pytest.fixture
def store_copy(store: Path, tmp_path: Path) -> Path:
    """A copy of the module's store, to be changed."""
    return Path(shutil.copytree(store, tmp_path / "copy"))
