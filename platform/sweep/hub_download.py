"""What a start needs from outside, in words, and the fetching of it from the hub before the first trial."""

from collections.abc import Iterable, Sequence
from functools import partial

from search_spaces.schema import backbones
from search_spaces.schema.sweep import Sweep
from trainables.common.cli import print_line
from trainables.common.deadlines import ANSWER_TIMEOUT, call_within
from trainables.common.errors import InputError, first_error_line
from trainables.data import hub_folders
from trainables.data.hub_folders import HubRequirement, find_downloaded_folder, read_pinned_commit
from trainables.storage.atomic_files import write_json
from trainables.storage.folder_storage import Storage


def describe_start_needs(sweep: Sweep, required: Iterable[HubRequirement], store: Storage) -> tuple[str, ...]:
    """Return what a start needs beyond its plan, as texts: GPUs, and what the storage lacks of the hub."""
    gpus = sweep.resources.gpus * sweep.resources.ranks
    needs = [f"{gpus:g} GPU{'s' if gpus > 1 else ''} for each trial (a start counts the cluster's)"] if gpus else []
    missing = (describe_hub_requirement(each) for each in required if not find_downloaded_folder(each, store))
    return (*needs, *(f"{each}\n  not checked: needs the hub" for each in missing))


def describe_hub_requirement(requirement: HubRequirement) -> str:
    """Return where a requirement comes from, how to get it without a network, and which licence to accept."""
    options = " --repo-type dataset" if requirement.repo_type == "dataset" else ""
    options += f" --revision {requirement.revision}" if requirement.revision else ""
    download = f"hf download {requirement.id}{options} (where there is a network; then copy HF_HOME)"
    place = "without a network, on the machine that runs the sweep (with --cluster: its head)"
    lines = [f"{requirement.label} from the hub; {place}:", f"{download}, or {requirement.folder_option}"]
    if requirement.gated:
        lines.append(requirement.gated)
    elif requirement.kind in ("models", "tokenizers") and requirement.id.startswith(backbones.GATED_HUB_ID_PREFIXES):
        page = f"https://huggingface.co/{requirement.id}"
        lines.append(f"it is gated: accept its licence at {page} and set HF_TOKEN (or log in with 'hf auth login')")
    return "\n  ".join(lines)


def fetch_requirements(required: Sequence[HubRequirement], store: Storage) -> None:
    """Fetch what this machine lacks, at the storage's commits. Raises InputError with what to accept or to bring."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, RevisionResolutionError

    unreached = (httpx2.HTTPError, RevisionResolutionError, OSError, RuntimeError)  # hf_xet's are RuntimeErrors
    missing, why = [], ""
    for requirement in required:
        try:
            if not find_downloaded_folder(requirement, store):
                _fetch(requirement, store)
        except unreached as error:
            if isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403, 404):
                said = " ".join(str(error).split("\n\n", 1)[-1].split())
                licence = "accept its licence if it is gated, and set HF_TOKEN (or log in with 'hf auth login')"
                raise InputError(
                    f"{requirement.field}: {requirement.label}: {said}; "
                    + (requirement.gated or f"check the name; {licence}; or {requirement.folder_option}")
                ) from error
            if isinstance(error, OSError) and error.errno is not None:  # the disk is full
                raise
            print_line(f"needs: {describe_hub_requirement(requirement)}")
            why = f"the hub does not answer ({first_error_line(error.__cause__ or error)})"
            missing.append(requirement.label)
    if missing:
        lacks = f"this machine has not: {', '.join(missing)}; what to bring is said above, and by --dry-run"
        raise InputError(f"hub: {why}, and {lacks}")


def _fetch(requirement: HubRequirement, store: Storage) -> None:
    """Fetch a requirement at the storage's commit, or at the one that its revision names now: offline the cache's."""
    from huggingface_hub import HfApi

    hub_folders.check_hub_responds()
    named = {"repo_type": requirement.repo_type, "revision": requirement.revision}
    look_up = partial(HfApi().resolve_revision, requirement.id, **named)
    commit = read_pinned_commit(requirement, store) or call_within(ANSWER_TIMEOUT, "the hub", look_up).resolved
    print_line(f"fetching {requirement.id} at {commit[:12]}")
    folder = hub_folders.download_commit(requirement, commit)
    if requirement.kind == "models" and not any(folder.glob("model*.safetensors")):
        raise InputError(
            f"{requirement.field}: {requirement.id} has no model.safetensors on the hub, and nothing else is loaded; "
            f"save it as safetensors and give that folder: {requirement.folder_option}"
        )
    write_json(pin := hub_folders.locate_commit_pin(requirement, store), {"commit": commit})
    store.push(pin)
