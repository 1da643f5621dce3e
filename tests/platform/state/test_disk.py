"""The disk budget: what a plan will write, what is refused, and which weights are dropped while a sweep runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from platform.state import disk, kept_weights
from platform.state.limits import Stopper
from tests.support import small_sweep
from tests.support.small_sweep import Small, seeds
from tests.support.starts import write_result
from trainables.common.errors import InputError
from trainables.config.settings import Selection
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CHECKPOINT, WEIGHTS
from trainables.storage.opening import open_storage


def test_sizes_as_people_write_them() -> None:
    sizes = {"20GB": 20e9, "500 mb": 500e6, "1.5TiB": 1.5 * 2**40, "2g": 2e9, "4096": 4096, "1Ki": 1024}
    assert {text: disk.parse_size(text) for text in sizes} == sizes
    for text in ("", "GB", "-1GB", "0", "1e9", "20kbit", "1" * 400):
        with pytest.raises(InputError, match=r"--disk-budget: '.*' is no size; write it like 500MB, 20GB or 1.5TB"):
            disk.parse_size(text)


def test_forecast_counts_what_a_plan_writes(tmp_path: Path) -> None:
    """Results alone where nobody knows the model's sizes; weights, checkpoints, directions where its folder tells."""
    small, store = small_sweep.write(tmp_path / "small"), Storage(tmp_path / "runs")
    state = small.state(store, only=["benchmark.split=forget01"])
    assert disk.forecast(state, store, "pareto", 3) == {"results": 55 * 2 * 2**20}
    sizes = '{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, '
    (small.models / "full" / "config.json").write_text(sizes + '"vocab_size": 1000, "model_type": "llama"}')
    state = small.state(store, "resources.checkpoint_every=5", only=["benchmark.split=forget01"])
    parts = {choice: disk.forecast(state, store, choice, 3) for choice in kept_weights.CHOICES}
    parameters = 2 * 1000 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
    studies = len(state.plan.studies())
    assert parts["all"]["weights"] == 55 * parameters * 4
    assert parts["pareto"]["weights"] == parts["best"]["weights"] == studies * parameters * 4
    assert "weights" not in parts["none"]
    assert parts["none"]["checkpoints"] == 3 * 2 * parameters * 16  # three trials side by side
    assert parts["none"]["directions"] == 2 * parameters * 4  # TV's and TRU's


def test_forecast_beyond_the_budget_or_the_disk_is_refused(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Storage(tmp_path)
    (tmp_path / "earlier").write_bytes(bytes(7_000_000))
    state = small.state(store, only=["benchmark.split=forget01"])
    disk.check_budget(state, store, "pareto", 123_000_000, 1)
    with pytest.raises(InputError) as refused:
        disk.check_budget(state, store, "pareto", 122_000_000, 1)
    assert str(refused.value) == (
        "--disk-budget: the storage has 7.0 MB and at least 115 MB (results 115 MB) will come, together more than "
        "122 MB; what helps: a larger budget, a smaller --keep than pareto, or fewer trials (--only)"
    )
    assert disk.describe_shortage(state, store, "pareto", 1) is None
    monkeypatch.setattr(Storage, "free", lambda store: 115_000_000)
    message = "disk: at least 115 MB (results 115 MB) will come, 115 MB are free; what helps: another disk"
    assert (disk.describe_shortage(state, store, "pareto", 1) or "").startswith(message)


def write_weights(folder: Path) -> tuple[kept_weights.Keeper, Storage]:
    """Four trials of one study with 1 MB of weights each: 0 and 1 are the front, 1 is the rule's choice."""
    store = open_storage(str(folder))
    found = seeds(4)
    for trial, (quality, utility) in zip(found, [(-1.0, 0.3), (-5.0, 0.8), (-6.0, 0.2), (-9.0, 0.1)], strict=True):
        metrics = {"forget_quality": quality, "model_utility": utility}
        write_result(store, trial.id(), metrics=metrics)
        (store.trial(trial.id()) / WEIGHTS).mkdir()
        (store.trial(trial.id()) / WEIGHTS / "model.safetensors").write_bytes(bytes(1_000_000))
    keeper = kept_weights.Keeper(store, "all", "tofu", Selection(), {found[0].benchmark.split: 0.8})
    for trial in found:
        keeper.add_trial(trial)
    return keeper, store


@pytest.mark.parametrize(
    ("budget", "choice", "left"),
    [(None, "all", 4), (4_100_000, "all", 4), (3_900_000, "pareto", 2), (1_900_000, "best", 1), (900_000, "none", 0)],
)
def test_fewer_weights_are_kept_step_by_step(
    tmp_path: Path, budget: int | None, choice: str, left: int, capsys: pytest.CaptureFixture[str]
) -> None:
    keeper, store = write_weights(tmp_path)
    assert disk.DiskMonitor(keeper, budget).poll() is None
    assert keeper.choice == choice
    assert len(list(store.root.rglob("*.safetensors"))) == left
    assert (f"--keep {choice} from now on" in capsys.readouterr().out) == (choice != "all")


def test_budget_that_results_alone_exceed_stops_the_sweep(tmp_path: Path) -> None:
    keeper, store = write_weights(tmp_path)
    (store.root / "rows").write_bytes(bytes(2_000_000))
    why = disk.DiskMonitor(keeper, 1_500_000).poll()
    assert why == "--disk-budget 1.5 MB: the storage has 2.0 MB, without any weights kept"
    stopper = Stopper(disk=why)
    assert (stopper.reason, stopper.advice) == (why, "go on with a larger --disk-budget and --resume")


def test_checkpoints_of_running_trials_are_seen_before_any_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    keeper, store = write_weights(tmp_path)
    monitor = disk.DiskMonitor(keeper, 4_100_000)
    assert (monitor.poll(), keeper.choice) == (None, "all")
    checkpoint = store.trial("0123456789ab") / CHECKPOINT
    checkpoint.mkdir(parents=True)
    (checkpoint / "shard").write_bytes(bytes(1_000_000))
    now[0] = disk.MEASURE_SECONDS - 1
    assert (monitor.poll(), keeper.choice) == (None, "all")
    now[0] = disk.MEASURE_SECONDS
    assert (monitor.poll(), keeper.choice) == (None, "pareto")
    (checkpoint / "shard").write_bytes(bytes(5_000_000))
    now[0] = 2 * disk.MEASURE_SECONDS
    assert monitor.poll() == "--disk-budget 4.1 MB: the storage has 5.0 MB, without any weights kept"
    (checkpoint / "shard").unlink()
    now[0] = 3 * disk.MEASURE_SECONDS
    assert monitor.poll() is not None  # Tune was told that there is no more
