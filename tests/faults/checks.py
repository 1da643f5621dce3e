"""What must hold after a fault and a resume: nothing lost, nothing doubled, nothing other than undisturbed."""

import json
from collections.abc import Iterable, Iterator

import pytest

from tests.faults.sweep import Round, Watch, sweep_of
from tests.support.interrupted import TIMING
from trainables.storage import atomic_files
from trainables.storage.file_names import CONFIG, LOST, RESULT, ROWS, STEPS
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile

KEPT = (CONFIG, RESULT, STEPS, ROWS, "weights")
OTHERS = ("collapsed", "diverged", "failed", "out_of_memory", "lost", "missing")


def outcome(done: Round, base: Storage, uri: str | None = None) -> dict[str, list[str]]:
    """Judge a round's storage by an undisturbed one's, and the tracking server at `uri` (else the storage's own).

    Each count is of docs/reliability.md; only what is wrong is returned.
    """
    store, expected = done.store, set(sweep_of(base).trials)
    listed, after = sweep_of(store).trials, done.results()
    finished = {name for name in after if (store.result(name) or {})["status"] == "finished"}
    lost = sorted(expected - finished)
    if sorted(listed) != sorted(expected):
        lost.append(f"the sweep's file lists {len(listed)} trials, {len(set(listed))} different ones")
    before = {name: content for name, content in done.before.items() if json.loads(content)["status"] == "finished"}
    rewritten = sorted(name for name in before.keys() - done.again if after.get(name) != before[name])
    found = {
        "lost": lost,
        "doubled": [*sorted(after.keys() - expected), *rewritten, *twice(done.watch, done.again)],
        "other numbers": differences(store, base, expected & finished),
        "MLflow differs": list(mirrored(store, uri)),
        "restarted": restarted(done),
        "litter": litter(store),
    }
    return {count: names for count, names in found.items() if names}


def litter(store: Storage) -> list[str]:
    """What is left of checkpoints, of writes that were cut off and of Ray's own state."""
    found = [path for path in store.root.glob("trials/*/*") if path.name not in KEPT]
    return sorted(str(path.relative_to(store.root)) for path in [*found, *store.root.glob("ray/*")])


def twice(watch: Watch, again: Iterable[str]) -> list[str]:
    """Trials with more than one finished result ever (and one more where the fault destroyed the first)."""
    watch.note_results()
    allowed = dict.fromkeys(again, 2)
    return [f"{name}: {sorted(runs)}" for name, runs in watch.seen.items() if len(runs) > allowed.get(name, 1)]


def restarted(done: Round) -> list[str]:
    """Trials that another attempt ended from an earlier step than their checkpoint's.

    Not those that failed, and whose result was set aside: such a one is run again from its beginning.
    """
    found = []
    for name, (attempt, step) in done.saved.items():
        result, aside = done.store.result(name) or {}, done.store.root.glob(f"set_aside/*/{name}/{RESULT}")
        failed = any((atomic_files.read_json(path) or {}).get("status") != LOST for path in aside)
        resumed_at = result.get("training", {}).get("resumed_at")
        if not failed and result.get("attempt") != attempt and (resumed_at or 0) < step:
            found.append(f"{name}: a checkpoint of step {step}, resumed at {resumed_at}")
    return found


def differences(store: Storage, base: Storage, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if numbers(store, name) != numbers(base, name))


def numbers(store: Storage, name: str) -> str:
    """All that a trial measured, as text: NaN is equal to itself there."""
    result, folder = store.result(name) or {}, store.trial(name)
    steps = [
        {k: v for k, v in row.items() if k not in TIMING} for row in atomic_files.read_parquet_rows(folder / STEPS)
    ]
    rows = atomic_files.read_parquet_rows(folder / ROWS)
    return json.dumps([result["status"], result["metrics"], result["halves"], steps, rows], sort_keys=True)


def mirrored(store: Storage, uri: str | None = None, sweep: SweepFile | None = None) -> Iterator[str]:
    """Yield what of a sweep's runs is not one parent with its counts, and one run for each trial with its result.

    `sweep`: its file, that of the storage's only sweep if it is not given.
    """
    from mlflow import MlflowClient

    client, sweep = MlflowClient(tracking_uri=uri or f"sqlite:///{store.root / 'mlflow.db'}"), sweep or sweep_of(store)
    experiment = client.get_experiment_by_name(sweep.name)
    condition = f"tags.sweep_id LIKE '{sweep.label}%'"  # of a server with more behind it
    runs = client.search_runs([experiment.experiment_id], condition, max_results=1000) if experiment else []
    parents = [run for run in runs if run.data.tags.get("role") == "parent"]
    shown = [str(run.data.tags.get("trial_id")) for run in runs if run not in parents]
    if len(parents) != 1 or sorted(shown) != sorted(sweep.trials):
        yield f"{len(parents)} parents, {len(shown)} runs of {len(set(shown))} trials"
        return
    wanted = dict.fromkeys((f"trials/{name}" for name in OTHERS), 0)
    wanted |= dict.fromkeys(("trials/total", "trials/finished"), len(sweep.trials))
    if (parents[0].info.status, parents[0].data.metrics) != ("FINISHED", wanted):
        yield f"the parent is {parents[0].info.status} and tells {parents[0].data.metrics}"
    for run in (run for run in runs if run not in parents):
        name, tags = run.data.tags["trial_id"], run.data.tags
        result = store.result(name) or {}
        told = (run.info.status, tags.get("mlflow.parentRunId"), tags.get("started"))
        metrics = {k.removeprefix("eval/"): v for k, v in run.data.metrics.items() if k.startswith("eval/")}
        measured = {k: pytest.approx(v) for k, v in result["metrics"].items() if v is not None}
        if told != ("FINISHED", parents[0].info.run_id, result.get("started")) or metrics != measured:
            yield f"{name}: {told}, {metrics}"
