"""Files that are written whole: tables."""

from __future__ import annotations

from pathlib import Path

from trainables.storage import files


def test_rows_of_a_trial_that_observes_since_it_was_resumed_keep_all_columns(tmp_path: Path) -> None:
    files.write_rows(tmp_path / "steps.parquet", [{"step": 1}, {"step": 2, "observed_cos": 0.5}])
    assert files.read_rows(tmp_path / "steps.parquet") == [
        {"step": 1, "observed_cos": None},
        {"step": 2, "observed_cos": 0.5},
    ]
