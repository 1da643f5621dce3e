"""Files of a repository of the hub into a folder: checked, a damaged one again, with a plain line every few seconds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from platform.preparation import repo_files
from platform.preparation.repo_files import File, Listing
from trainables.common import cli
from trainables.common.errors import InputError
from trainables.data import safetensors_check
from trainables.data.hub import HubRequirement

SECONDS = 5.0
"""Between two lines."""
WAITS = (1.0, 4.0, 15.0)
"""Seconds before each further try of what the hub did not answer."""
TRIES = 3
"""Of a file that comes damaged."""
BUSY = (408, 429)
Say = Callable[[str], None]
V = TypeVar("V")


class Silent(Exception):
    """The hub does not answer, or must not be asked."""


def asked(action: Callable[[], V], what: str, say: Say) -> V:
    """What `action` gives, tried again where that may help. Raises Silent where the hub cannot be reached."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    for wait in (*WAITS, None):
        try:
            return action()
        except OfflineModeIsEnabled as error:
            raise Silent("HF_HUB_OFFLINE is set") from error
        except Exception as error:
            if not _may_pass(error):
                raise
            if wait is None:
                told = "fails" if isinstance(error, HfHubHTTPError) else "does not answer"
                raise Silent(f"the hub {told} ({_first_line(error)})") from error
            say(f"{what}: {_first_line(error)}; again in {wait:g} s")
            time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def listing(thing: HubRequirement, revision: str, config: str | None, say: Say) -> Listing:
    """All files of a repository at the commit that `revision` is now."""
    from huggingface_hub import HfApi

    kind = "dataset" if thing.kind == "datasets" else "model"
    info = asked(
        lambda: HfApi().repo_info(thing.id, repo_type=kind, revision=revision, files_metadata=True), thing.id, say
    )
    return replace(repo_files.of(info, thing.kind, config), id=thing.id)


def card(whole: Listing, folder: Path, field: str, say: Say) -> dict[str, Any]:
    """The metadata of a data set's card, which names its configurations; empty where there is none."""
    from huggingface_hub import DatasetCard

    for file in whole.of([repo_files.CARD]).files:
        folder.mkdir(parents=True, exist_ok=True)
        _file(whole, file, folder, field, say)
        return DatasetCard.load(folder / file.name, ignore_metadata_errors=True).data.to_dict()
    return {}


def write_card(folder: Path, metadata: dict[str, Any]) -> None:
    """A card of this metadata and no text."""
    import yaml

    text = yaml.safe_dump(metadata, sort_keys=False)
    (folder / repo_files.CARD).write_text(f"---\n{text}---\n", encoding="utf-8")


def fill(listing: Listing, folder: Path, field: str, say: Say) -> None:
    """Bring what is not in the folder yet, whole. Raises InputError where a file comes damaged each time."""
    with _progress(listing, folder, say) as now:
        for file in listing.files:
            now[0] = file.name
            path = folder / file.name
            if not path.is_file() or file.fault(path) is not None:
                _file(listing, file, folder, field, say)
        if listing.kind == "models":
            _weights(listing, folder, field, say)


def is_whole(listing: Listing, folder: Path) -> bool:
    """Whether a folder has every file as the hub has it; the card of one configuration is our own."""
    ours = None if listing.config is None else repo_files.CARD
    return all(
        (path := folder / file.name).is_file() and (file.name == ours or file.fault(path) is None)
        for file in listing.files
    )


def _file(listing: Listing, file: File, folder: Path, field: str, say: Say, *, again: bool = False) -> None:
    from huggingface_hub import hf_hub_download

    path, fault = folder / file.name, ""
    for number in range(TRIES):
        path.unlink(missing_ok=True)
        forced = again or number > 0  # else a copy in the cache of Hugging Face's libraries will do
        asked(
            lambda forced=forced: hf_hub_download(
                listing.id,
                file.name,
                repo_type=listing.type,
                revision=listing.commit,
                local_dir=folder,
                force_download=forced,
            ),
            f"{listing.id}: {file.name}",
            say,
        )
        fault = file.fault(path) or ""
        if not fault:
            return
        say(f"{listing.id}: {file.name} is damaged ({fault}); fetching it again")
    raise InputError(
        f"{field}: {file.name} of {listing.id} came damaged {TRIES} times ({fault}); try again later, or bring the file"
    )


def _weights(listing: Listing, folder: Path, field: str, say: Say) -> None:
    """Hold the weights against their own index: a file at fault is fetched once more."""
    known = {file.name: file for file in listing.files}
    for name, fault in safetensors_check.faults(folder).items():
        say(f"{listing.id}: {name} is damaged ({fault}); fetching it again")
        if name in known:
            _file(listing, known[name], folder, field, say, again=True)
    for name, fault in safetensors_check.faults(folder).items():
        if name == safetensors_check.INDEX and all(
            file.sha256 for file in listing.files if file.name.endswith(".safetensors")
        ):
            say(f"warning: {listing.id}: {name}: {fault}; the shards are as the hub has them")
            continue
        raise InputError(f"{field}: {name} of {listing.id} at {listing.commit} is not whole on the hub: {fault}")


@contextmanager
def _progress(listing: Listing, folder: Path, say: Say) -> Iterator[list[str]]:
    """Lines until the block ends, from what lies on the disk; the list holds the name of the file under way."""
    begun, before, now, ended = time.monotonic(), held(folder), [""], threading.Event()
    of = f" of {cli.format_size(listing.bytes)}" if listing.bytes else ""

    def tell() -> None:
        last = before
        while not ended.wait(SECONDS):
            size = held(folder)
            speed = cli.format_size(max(0, size - last) / SECONDS)  # what breaks off begins anew
            say(f"fetching {listing.id}: {now[0]}, {cli.format_size(size)}{of}, {speed}/s")
            last = size

    say(f"fetching {listing.id} at {listing.commit[:12]}: {len(listing.files)} files{of.replace(' of', ',')}")
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield now
    finally:
        ended.set()
        teller.join()
    seconds = max(time.monotonic() - begun, 1e-3)
    came = max(0, held(folder) - before)
    say(f"fetched {listing.id}: {cli.format_size(came)} in {seconds:.0f} s, {cli.format_size(came / seconds)}/s")


def held(folder: Path) -> int:
    """Bytes on the disk of all files below; of those that are being written what is written."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.stat(os.path.join(place, name))
            except FileNotFoundError:
                continue
            total += min(status.st_size, status.st_blocks * 512)
    return total


def _may_pass(error: Exception) -> bool:
    """Whether the same question may be answered a little later.

    Of hf_xet, which brings what the hub keeps in Xet, every failure of the network or its server is a RuntimeError.
    """
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return status in BUSY or status >= 500
    if isinstance(error, httpx2.TransportError) or type(error) is RuntimeError:
        return True
    return isinstance(error, OSError) and error.errno is None


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return (text.splitlines() or [type(error).__name__])[0]
