"""What a sweep wants of the hub is fetched once, by the driver, into the storage; then every machine reads it there.

See trainables.data.hub for what lies where. Nothing is fetched by a trial.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import Timeout

from platform.plan import requirements
from platform.plan.value import Plan
from platform.preparation import downloads, repo_files
from platform.preparation.downloads import Say, Silent
from platform.preparation.repo_files import Listing
from trainables.benchmarks import lm_eval_questions
from trainables.common import cli, provenance
from trainables.common.errors import InputError
from trainables.data import safetensors_check
from trainables.data.hub import HubRequirement, HubSnapshot, hub_root, lock, read_pin, write_pin
from trainables.storage import files as storage_files
from trainables.storage.base import Storage

PATIENCE = 5.0
"""Seconds that the hub has to say whether it has moved on: nothing waits for that."""


def ask(plan: Plan, store: Storage, say: Say) -> None:
    """Before machines are taken: raise InputError where `fetch` would because the hub is silent."""
    hub = Hub(store, say)
    if hub.is_silent(plan.hub):
        hub.bring(plan.hub)


def fetch(plan: Plan, store: Storage, say: Say) -> None:
    """Bring what is not in the storage. Raises InputError: what to accept, or what is said that one may bring."""
    Hub(store, say).bring(plan.hub)


class Hub:
    """`silent`: why the hub is not asked any more; `mute`: it is not asked whether it has moved on.

    `known`: the files of things, where the hub told them before it fell silent.
    """

    def __init__(self, store: Storage, say: Say) -> None:
        self.store = store
        self.say = say
        self.silent: str | None = None
        self.mute = False
        self.known: dict[str, Listing] = {}

    def bring(self, things: Sequence[HubRequirement]) -> None:
        """Raises InputError where the hub is silent and something is not here, having said what to bring of it."""
        lacking = [thing for thing in things if not self.ensure(thing)]
        for thing in lacking:
            self.say(f"needs: {requirements.told(thing, self.store, self.known.get(thing.key))}")
        if lacking:
            names = ", ".join(thing.label for thing in lacking)
            raise InputError(
                f"hub: {self.silent}, and the storage has not: {names}; what to bring is said above, and by --dry-run"
            )

    def is_silent(self, things: Sequence[HubRequirement]) -> bool:
        """Whether the hub is needed and does not answer; whatever it answers is for `ensure`."""
        away = next((thing for thing in things if thing.kind != "tasks" and not self._here(thing)), None)
        if away is None:
            return False
        try:
            downloads.listing(away, away.revision or "main", None, self.say)
        except Silent as error:
            self.silent = str(error)
        except OSError:
            return False
        return self.silent is not None

    def ensure(self, thing: HubRequirement) -> bool:
        """Whether the thing is in the storage by now."""
        pin = self._there(thing)
        if pin is not None:
            self._look(thing, pin)
            return True
        with self._alone(thing):
            return bool(self._there(thing) or self._brought(thing)) or self._fetched(thing)

    @contextmanager
    def _alone(self, thing: HubRequirement) -> Iterator[None]:
        """Nobody else on this machine's file system fetches the thing until the block ends."""
        held = lock(f"{thing.key}.lock", self.store)
        try:
            held.acquire(timeout=1)
        except Timeout:
            self.say(f"{thing.label}: another start is fetching it; waiting for that")
            held.acquire()
        try:
            yield
        finally:
            held.release()

    def _there(self, thing: HubRequirement) -> HubSnapshot | None:
        pin = read_pin(thing, self.store)
        return pin if pin and self.store.exists(hub_root(self.store) / pin.folder) else None

    def _here(self, thing: HubRequirement) -> bool:
        return self._there(thing) is not None or (hub_root(self.store) / thing.key).is_dir()

    def _look(self, thing: HubRequirement, pin: HubSnapshot) -> None:
        """Say where the hub has moved on from what this storage keeps to."""
        if pin.commit in (None, pin.revision) or self.mute or self.silent:
            return
        from huggingface_hub import HfApi

        kind = "dataset" if pin.folder.startswith("datasets") else "model"
        try:
            now = HfApi().repo_info(pin.id, repo_type=kind, revision=pin.revision, timeout=PATIENCE).sha
        except Exception:  # whatever it is: the files are here
            self.mute = True
            return
        if now != pin.commit:
            self.say(
                f"{pin.id}: '{pin.revision}' is now {str(now)[:12]} on the hub; this storage keeps to "
                f"{str(pin.commit)[:12]}, which its results were made from (another --storage takes the new one)"
            )

    def _brought(self, thing: HubRequirement) -> bool:
        """Whether a person put the files where messages say. Raises InputError where they are not whole."""
        folder = hub_root(self.store) / thing.key
        if not folder.is_dir():
            return False
        if thing.kind == "models":
            absent = {} if (folder / "config.json").is_file() else {"config.json": "it is not there"}
            for name, why in (safetensors_check.faults(folder) | absent).items():
                raise InputError(f"{thing.field}: {folder / name}: {why}; bring it again")
        files = [file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")]
        sizes = {file.name: {"size": file.stat().st_size} for file in files}
        self._publish(
            thing, folder, HubSnapshot(thing.id, thing.revision or "main", None, thing.key, "brought", _now(), sizes)
        )
        self.say(f"{thing.label}: taken from {folder}")
        return True

    def _fetched(self, thing: HubRequirement) -> bool:
        """Whether the hub gives it, or else this machine's cache of Hugging Face's libraries. Raises InputError."""
        plain, config = thing, None
        if thing.kind == "tasks":
            source = lm_eval_questions.source_of(thing.id)
            if source is None:
                self.say(f"{thing.label}: lm-eval fetches them itself, on each machine")
                return True
            plain, config = replace(thing, kind="datasets", id=source[0]), source[1]
        if self.silent is None:
            try:
                self._download(thing, plain, config)
                return True
            except Silent as error:
                self.silent = str(error)
            except OSError as error:
                _refuse(plain, error)
                raise
        return self._cached(thing, plain)

    def _download(self, thing: HubRequirement, plain: HubRequirement, config: str | None) -> None:
        """Raises InputError or what the hub answers; Silent where it does not."""
        pin = read_pin(thing, self.store)
        revision = (pin.commit if pin else None) or thing.revision or "main"  # its folder was lost: the same once more
        whole = downloads.listing(plain, revision, config, self.say)
        staging = hub_root(self.store) / f".{whole.folder}.part"  # goes on after an interrupt
        card: dict[str, Any] = {}
        if plain.kind == "datasets":
            card = downloads.card(whole, staging, plain.field, self.say)
            listing = repo_files.read_of_data(whole, card)
        else:
            listing = repo_files.read_of_model(plain, whole)
        self.known[thing.key] = listing
        folder = hub_root(self.store) / listing.folder
        if self.store.exists(folder) or self._left(thing, listing, folder):
            shutil.rmtree(staging, ignore_errors=True)  # the card alone
        else:
            self._check_room(plain, listing.bytes - downloads.held(staging))
            staging.mkdir(parents=True, exist_ok=True)
            downloads.fill(listing, staging, plain.field, self.say)
            if listing.config is not None:
                downloads.write_card(staging, repo_files.reduced(card, listing.config))
            shutil.rmtree(staging / ".cache", ignore_errors=True)  # huggingface_hub's own notes
        self._keep(thing, listing, staging, "hub")

    def _left(self, thing: HubRequirement, listing: Listing, folder: Path) -> bool:
        """Whether an earlier start fetched it whole to this machine and could not send it; what is damaged goes."""
        if not folder.is_dir():
            return False
        self.say(f"{thing.label}: an earlier start left it in {folder}; it is checked and sent")
        if downloads.is_whole(listing, folder):
            return True
        self.say(f"{thing.label}: {folder} is not as the hub has it; fetching it again")
        shutil.rmtree(folder)
        return False

    def _check_room(self, thing: HubRequirement, lacking: int) -> None:
        free = self.store.free()
        if lacking > free:
            raise InputError(
                f"--storage: {thing.label} takes {cli.format_size(lacking)}, "
                f"{cli.format_size(free)} are free at '{self.store.root}'"
            )

    def _cached(self, thing: HubRequirement, plain: HubRequirement) -> bool:
        """Whether this machine's cache has a model or tokenizer whole: of data sets it does not tell."""
        from huggingface_hub import snapshot_download

        if plain.kind not in repo_files.FILES:
            return False
        try:
            found = Path(
                snapshot_download(
                    plain.id,
                    revision=plain.revision,
                    allow_patterns=list(repo_files.FILES[plain.kind]),
                    local_files_only=True,
                )
            )
        except Exception:  # it has no such snapshot, or not all of it
            return False
        names = [path.name for path in found.iterdir() if path.is_file()]
        files = tuple(repo_files.File(name, (found / name).stat().st_size) for name in sorted(names))
        whole = Listing(plain.id, plain.kind, found.name, files)
        if "config.json" not in names or (plain.kind == "models" and safetensors_check.faults(found)):
            return False
        listing = repo_files.read_of_model(plain, whole)
        staging = hub_root(self.store) / f".{listing.folder}.part"
        staging.mkdir(parents=True, exist_ok=True)
        for file in listing.files:
            shutil.copyfile(found / file.name, staging / file.name)
        self._keep(thing, listing, staging, "cache")
        self.say(f"{plain.label}: taken from this machine's cache at {found}")
        return True

    def _keep(self, thing: HubRequirement, listing: Listing, staging: Path, source: str) -> None:
        files = {file.name: {"size": file.size, "sha256": file.sha256} for file in listing.files}
        pin = HubSnapshot(listing.id, thing.revision or "main", listing.commit, listing.folder, source, _now(), files)
        folder = hub_root(self.store) / pin.folder
        if staging.is_dir() and not folder.is_dir():
            storage_files.publish(staging, folder)
        shutil.rmtree(staging, ignore_errors=True)
        self._publish(thing, folder, pin)

    def _publish(self, thing: HubRequirement, folder: Path, pin: HubSnapshot) -> None:
        if folder.is_dir():
            self.store.push(folder)
        write_pin(thing, pin, self.store)


def _refuse(thing: HubRequirement, error: Exception) -> None:
    """Raise InputError where the hub gives it to nobody, or not to us."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RevisionNotFoundError

    if not isinstance(error, HfHubHTTPError):
        return
    kind, instead = "datasets/" if thing.kind == "datasets" else "", thing.option
    if isinstance(error, GatedRepoError):
        token = "the token that is set has no access yet" if get_token() else "no token is set"
        accept = thing.gated or (
            f"{thing.label} is gated: accept its licence at https://huggingface.co/{kind}{thing.id}, then set "
            f"HF_TOKEN (or log in with 'hf auth login'); or {instead}"
        )
        raise InputError(f"{thing.field}: {accept} ({token})") from error
    if isinstance(error, RevisionNotFoundError):
        raise InputError(f"{thing.field}: {thing.id} has no revision '{thing.revision}' on the hub") from error
    if error.response.status_code in (401, 403, 404):
        raise InputError(
            f"{thing.field}: the hub has no {thing.label}, or shows it to those with access alone (HF_TOKEN, "
            f"'hf auth login'); check the name, or {instead}"
        ) from error


def _now() -> str:
    return provenance.now()
