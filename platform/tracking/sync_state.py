"""What MLflow was last told of a sweep: a start that changes nothing need not load and ask it, which takes seconds.

SQLite's file is looked for. A server that was emptied since is told all again by `platform.tracking sync`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from platform.tracking import database
from trainables.common import provenance
from trainables.config.ids import digest
from trainables.storage import files
from trainables.storage.base import Storage
from trainables.storage.results import summarise


def is_in_sync(sweep: dict[str, Any], store: Storage) -> bool:
    """Return whether nothing has changed since `mark_in_sync`; never where each machine has a copy of the storage."""
    uri = database.tracking_uri(store)
    exists = not uri.startswith(database.SQLITE) or Path(uri.removeprefix(database.SQLITE)).is_file()
    return exists and not store.is_remote and files.read_json(_note(sweep, store)) == _state(sweep, store)


def mark_in_sync(sweep: dict[str, Any], store: Storage) -> None:
    """Note that MLflow shows all, the report too. Where the disk has no room for this, MLflow is asked again."""
    with contextlib.suppress(OSError):
        files.write_json(_note(sweep, store), _state(sweep, store))


def _state(sweep: dict[str, Any], store: Storage) -> dict[str, Any]:
    results = {key: brief.started for key in sweep["trials"] if (brief := summarise(store, key))}
    fields = {name: sweep.get(name) for name in ("title", "selection", "target", "trials")}
    made_from = {"uri": database.tracking_uri(store), "results": results, "commit": provenance.commit()[0], **fields}
    return {"shown": digest(made_from)}


def _note(sweep: dict[str, Any], store: Storage) -> Path:
    return store.sweep(sweep["name"], sweep["hash"]).with_suffix(".shown")
