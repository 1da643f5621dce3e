"""An exported model folder as a repository of the Hugging Face hub, private unless asked otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trainables.common.errors import InputError
from trainables.trial.export.model_folder import CARD


def check_target(name: str) -> None:
    """Raise InputError, before any work, for a name that is none, without a token, or where the hub is switched off."""
    from huggingface_hub import constants, get_token
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise InputError(f"--push: {str(error).partition(chr(10))[0]}; give ORG/NAME") from error
    if "/" not in name:
        raise InputError(f"--push: '{name}' is no name of a repository; give ORG/NAME, or USER/NAME")
    if constants.HF_HUB_OFFLINE:
        raise InputError("--push: HF_HUB_OFFLINE=1 forbids to ask the hub; unset it, or leave --push out")
    if get_token() is None:
        raise InputError(
            "--push: there is no token; make one that may write at https://huggingface.co/settings/tokens, then set "
            "HF_TOKEN or log in with 'hf auth login'"
        )


def check_visibility(name: str, *, public: bool) -> None:
    """Raise InputError where the repository is there and others see what they should not, or the hub does not answer.

    An existing repository keeps who sees it: one that is public is not taken for a private one.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    private = not public
    with _hub_errors(name), suppress(RepositoryNotFoundError):
        private = bool(HfApi().model_info(name).private)
    if private == public:
        seen, do = ("private", "make it public on its page") if private else ("public", "add --public")
        raise InputError(f"--push: {name} is there and is {seen}; {do}, or give another name")


def upload(folder: Path, name: str, *, public: bool) -> str:
    """Send an exported folder, with the base model's licence in its card where the hub knows one; return its address.

    Makes the repository unless it is there. Files of that name in it are replaced, others stay. Raises InputError if
    the hub refuses.
    """
    from huggingface_hub import HfApi

    again = f"hf upload {name} '{folder}'{'' if public else ' --private'}"
    with _hub_errors(name, f"the model is in '{folder}'; to try again: {again}"):
        HfApi().create_repo(name, private=not public, exist_ok=True)
        _add_licence(folder / CARD)
        found = HfApi().upload_folder(repo_id=name, folder_path=folder)
    return str(found.repo_url)


def _add_licence(card_file: Path) -> None:
    """Write the licence of the base model into a card, as the hub has it, unless it is gone or not for this token."""
    from huggingface_hub import HfApi, ModelCard
    from huggingface_hub.errors import HfHubHTTPError

    card: Any = ModelCard.load(card_file)
    if card.data.base_model and not card.data.license:
        with suppress(HfHubHTTPError):
            known: Any = HfApi().model_info(card.data.base_model).card_data or {}
            card.data.license, card.data.license_name = known.get("license"), known.get("license_name")
            card.save(card_file)


@contextmanager
def _hub_errors(name: str, then: str | None = None) -> Iterator[None]:
    """Turn what the hub answers, or that it does not, into one line. `then`: what to do, if it is no other name."""
    import httpx2

    try:
        yield
    except (httpx2.HTTPError, RuntimeError, ValueError) as error:  # hf_xet's are RuntimeErrors, a card's ValueErrors
        said = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, httpx2.TransportError):
            said, then = f"the hub cannot be reached ({said})", then or "try again when it can"
        raise InputError(f"--push: {name}: {said}; {then or 'check the name, and the rights of the token'}") from error
