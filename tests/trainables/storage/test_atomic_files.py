"""Files that are written whole, tables, and who may read them."""

from __future__ import annotations

from pathlib import Path

from trainables.storage import atomic_files
from trainables.storage.opening import open_storage


def test_rows_of_a_trial_that_observes_since_it_was_resumed_keep_all_columns(tmp_path: Path) -> None:
    atomic_files.write_rows(tmp_path / "steps.parquet", [{"step": 1}, {"step": 2, "observed_cos": 0.5}])
    assert atomic_files.read_rows(tmp_path / "steps.parquet") == [
        {"step": 1, "observed_cos": None},
        {"step": 2, "observed_cos": 0.5},
    ]


def test_a_new_storage_is_for_its_user_alone_and_an_old_one_stays(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir(mode=0o755)
    assert open_storage(str(tmp_path / "new")).root.stat().st_mode & 0o777 == 0o700
    assert open_storage(str(old)).root.stat().st_mode & 0o777 == 0o755
