"""Small invented sweeps of MUSE, WMDP and own rows, for tests: GA and NPO without and with GRU, two seeds each."""

from pathlib import Path
from typing import Any

from tests.support.sweep_store import SETTINGS, grid, write_sweep, write_trial
from trainables import benchmarks

# benchmark -> split, how far a seed is from the last one, and the goals of each setting (method, place in SETTINGS).
SPLITS = {"muse": "news", "wmdp": "bio_cyber", "own": "own"}
STEPS = {"muse": 1.0, "wmdp": 0.01, "own": 0.02}
RESULTS: dict[str, dict[tuple[str, int], tuple[float, ...]]] = {
    "muse": {
        ("ga", 0): (0.0, 1.0, 2.0),
        ("ga", 1): (0.0, 4.0, 30.0),
        ("ga", 2): (20.0, 44.0, 50.0),
        ("npo", 0): (2.0, 40.0, 51.0),
        ("npo", 1): (6.0, 30.0, 52.0),
        ("npo", 2): (1.0, 45.0, 54.0),
    },
    "wmdp": {
        ("ga", 0): (0.25, 0.24, 0.24),
        ("ga", 1): (0.26, 0.24, 0.40),
        ("ga", 2): (0.50, 0.40, 0.56),
        ("npo", 0): (0.30, 0.30, 0.54),
        ("npo", 1): (0.28, 0.34, 0.55),
        ("npo", 2): (0.26, 0.35, 0.50),
    },
    "own": {
        ("ga", 0): (0.02, 0.00),
        ("ga", 1): (0.05, 0.40),
        ("ga", 2): (0.30, 0.68),
        ("npo", 0): (0.20, 0.50),
        ("npo", 1): (0.10, 0.66),
        ("npo", 2): (0.08, 0.50),
    },
}
MODELS: dict[str, dict[str, tuple[float, ...]]] = {
    "muse": {"original": (58.4, 63.9, 55.2), "retain": (20.8, 33.1, 55.0)},
    "wmdp": {"original": (0.64, 0.44, 0.58)},
    "own": {"original": (0.60, 0.70)},
}
SAME_ROWS = "chosen on the same evaluation rows that are reported, which favours the chosen one"
PRIVLEAK = {"original": -99.8, "retain": 0.0}


def metrics(name: str, values: tuple[float, ...], shift: float = 0.0, privleak: float = 52.0) -> dict[str, Any]:
    """Return a benchmark's metrics: the goals, each `shift` higher, and the other columns of its tables."""
    goals = benchmarks.get_benchmark(name).GOALS
    found = {goal.metric: value + shift for goal, value in zip(goals, values, strict=True)}
    if name == "own":
        rest = ("exact_memorisation", "rouge", "prob", "extraction_strength")
        return found | {f"forget_{metric}": values[0] + shift + place / 10 for place, metric in enumerate(rest, 1)}
    return found | ({"privleak": privleak} if name == "muse" else {"questions": 100})


def write_store(store: Path, name: str, **given: Any) -> Path:
    """Write the sweep `NAME-0a1b2c3d` with 12 finished trials and one that failed; `given` is for the sweep's file."""
    trials = []
    for (method, place), values in RESULTS[name].items():
        for seed in (0, 1):
            found = metrics(name, values, seed * STEPS[name])
            trial = f"{len(trials):012x}"
            fields = {"benchmark": name, "split": SPLITS[name], "seed": seed, "metrics": found}
            trials.append(write_trial(store, trial, method, SETTINGS[place], **fields))
    error = {"kind": "failed", "message": "no space left"}
    fields = {"benchmark": name, "split": SPLITS[name], "metrics": {}, "status": "failed", "error": error}
    trials.append(write_trial(store, "f" * 12, "gd", **fields))
    models = {
        role: {"metrics": metrics(name, values, privleak=PRIVLEAK[role])} for role, values in MODELS[name].items()
    }
    write_sweep(store, trials, name=name, benchmark=name, splits=(SPLITS[name],), models=models, **given)
    return store


def main_rows(markdown: str) -> dict[str, list[str]]:
    """Return the rows of a main table without their sd, a row under a method by the method's name too."""
    rows, method = {}, ""
    for label, *cells in grid(markdown)[2:]:
        method = label if not label.startswith("w/") else method
        rows[label if label == method else f"{method} {label}"] = [cell.split(" ±")[0] for cell in cells]
    return rows
