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


def same(sweep: dict[str, Any], store: Storage) -> bool:
    """Whether nothing has changed since `note`; never where each machine has its own copy of a storage."""
    uri = database.tracking_uri(store)
    there = not uri.startswith(database.SQLITE) or Path(uri.removeprefix(database.SQLITE)).is_file()
    return there and not store.is_remote and files.read_json(_file(sweep, store)) == _state(sweep, store)


def note(sweep: dict[str, Any], store: Storage) -> None:
    """All that there is was shown, the report too. Where the disk has no room for this, MLflow is asked again."""
    with contextlib.suppress(OSError):
        files.write_json(_file(sweep, store), _state(sweep, store))


def _state(sweep: dict[str, Any], store: Storage) -> dict[str, Any]:
    results = {key: brief.started for key in sweep["trials"] if (brief := summarise(store, key))}
    told = {name: sweep.get(name) for name in ("title", "selection", "target", "trials")}
    made = {"uri": database.tracking_uri(store), "results": results, "commit": provenance.commit()[0], **told}
    return {"shown": digest(made)}


def _file(sweep: dict[str, Any], store: Storage) -> Path:
    return store.sweep(sweep["name"], sweep["hash"]).with_suffix(".shown")
