"""An invented sweep of several rectifiers over seeds, for tests: values by rule, so that what follows is known."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis.stats.sweep_results import Results
from tests.support import sweep_store
from tests.support.sweep_store import calibrated, read, write_sweep, write_trial

Value = Callable[[str, str, int, float], tuple[float, float] | None]
"""FQ and MU of a method, rectifier, seed and learning rate; None: the trial diverged."""
NAMES = ("none", "gru", "sago", "blur")


def write_arena(
    store: Path,
    value: Value,
    *,
    names: Iterable[str] = NAMES,
    methods: Mapping[str, Iterable[str]] | None = None,
    seeds: Mapping[float, Iterable[int]] | None = None,
    mixed: bool = False,
    extraction: bool = False,
    **given: Any,
) -> Results:
    """Write methods with their rectifiers (`names`, if `methods` says nothing else) at the seeds of each learning rate.

    `given` is for the sweep's file.
    """
    ids = []
    for method, rectifiers in (methods or {"npo": tuple(names)}).items():
        for name in rectifiers:
            for lr, numbers in (seeds or {1e-3: range(10)}).items():
                for seed in numbers:
                    found = value(method, name, seed, lr)
                    rectifier = {"name": name, "gamma": 0.8 if name == "gru" else None, "tau": None}
                    fields: dict[str, Any] = {"seed": seed, "lr": lr}
                    if found is None:
                        fields |= {"status": "diverged", "error": sweep_store.DIVERGED, "metrics": {}}
                    else:
                        metrics = {"forget_quality": found[0], "model_utility": found[1]}
                        metrics |= {"forget_extraction_strength": -found[0] / 100} if extraction else {}
                        fields |= {"metrics": metrics} | ({"calibration": calibrated(*found)} if mixed else {})
                    ids.append(write_trial(store, f"{len(ids):012x}", method, rectifier, **fields))
    write_sweep(store, ids, name="arena", splits=("forget05",), **given)
    return read(store)
