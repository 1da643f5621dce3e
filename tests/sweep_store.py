"""A small invented sweep on disk, for tests: two splits, three methods, seeds, and every way a trial can go wrong."""

import json
from pathlib import Path
from typing import Any

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
DIVERGED = {"kind": "diverged", "message": "loss is <nan>", "step": 12}
VERSIONS = {"python": "3.11.7", "torch": "2.13.0"}


def write(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def write_trial(store: Path, trial: str, method: str = "ga", rectifier: dict[str, Any] = NONE, **given: Any) -> str:
    """Write one trial; `fq`, `mu`, `split`, `seed`, `status`, `error` and `lr` may be given."""
    config = {
        "method": method,
        "rectifier": rectifier,
        "benchmark": {"name": "tofu", "data": "data", "split": given.get("split", "forget05"), "fingerprint": "f00d"},
        "retain_evaluation": None,
        "training": {"lr": given.get("lr", 0.001), "epochs": 5},
        "seed": given.get("seed", 0),
    }
    write(store / "trials" / trial / "config.json", config)
    result = {
        "id": trial,
        "status": given.get("status", "finished"),
        "config": config,
        "metrics": {"forget_quality": given.get("fq"), "model_utility": given.get("mu"), "forget_rows": 200},
        "training": {"steps": 31, "skipped": 0},
        "seconds": {"total": 40.0, "training": 30.0, "evaluation": 10.0},
        "started": "2026-11-20T10:00:00Z",
        "versions": VERSIONS,
        "commit": "abc1234",
        "dirty": False,
        "topology": {"ranks": 1, "device": "cpu"},
        "error": given.get("error"),
    }
    write(store / "trials" / trial / "result.json", result)
    return trial


def write_sweep(store: Path, trials: list[str], name: str = "tiny", digest: str = "0a1b2c3d", **given: Any) -> None:
    """Write a sweep's file, and evaluations of its reference models for the given splits."""
    references = []
    for split in given.get("splits", ("forget05", "forget10")):
        for role, fq, mu in (("original", -21.4, ORIGINAL), ("retain", None, RETAIN)):
            evaluation = f"{role}-{split}"
            metrics = {"forget_quality": fq, "model_utility": mu}
            model = {"path": f"models/{role}", "fingerprint": "beef"}
            write(store / f"shared/evaluations/{evaluation}/result.json", {"model": model, "metrics": metrics})
            references.append({"role": role, "split": split, "evaluation": evaluation})
    data = {
        "name": name,
        "hash": digest,
        "title": "Three methods on two splits",
        "created": given.get("created", "2026-11-20T09:00:00Z"),
        "command": f"python -m platform.sweep {name}",
        "strategy": "grid",
        "trials": trials,
        "references": references,
    }
    write(store / "sweeps" / f"{name}-{digest}.json", data)


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
