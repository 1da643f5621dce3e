"""What a plan will write, and what is refused where the disk has no room for it."""

from __future__ import annotations

from pathlib import Path

from platform.state import disk, kept_weights
from tests.support import small_sweep
from trainables.storage.folder_storage import Storage


def test_forecast_counts_what_a_plan_writes(tmp_path: Path) -> None:
    """Results alone where nobody knows the model's sizes; weights, checkpoints, directions where its folder tells."""
    small, store = small_sweep.write(tmp_path / "small"), Storage(tmp_path / "runs")
    state = small.state(store, only=["benchmark.split=forget01"])
    assert disk.forecast_disk_use(state, store, "pareto", 3) == {"results": 55 * 2 * 2**20}
    sizes = '{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, '
    (small.models / "full" / "config.json").write_text(sizes + '"vocab_size": 1000}')
    state = small.state(store, "resources.checkpoint_every=5", only=["benchmark.split=forget01"])
    parts = {choice: disk.forecast_disk_use(state, store, choice, 3) for choice in kept_weights.KEEP_CHOICES}
    parameters = 2 * 1000 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
    studies = len(state.plan.trials_by_study())
    assert parts["all"]["weights"] == 55 * parameters * 4
    assert parts["pareto"]["weights"] == parts["best"]["weights"] == studies * parameters * 4
    assert "weights" not in parts["none"]
    assert parts["none"]["checkpoints"] == 3 * 2 * parameters * 16  # three trials side by side
    assert parts["none"]["directions"] == 2 * parameters * 4  # TV's and TRU's
