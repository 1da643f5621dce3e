"""An exported model folder as a repository of the Hugging Face hub, private unless asked otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainables.benchmarks.tofu import open_unlearning_files
from trainables.common.errors import InputError
from trainables.trial.export.model_folder import CARD
from trainables.trial.export.verify import EVALUATIONS

NOT_SENT = [f"{EVALUATIONS}/{open_unlearning_files.EVALUATION}"]
"""It holds the text of the forget rows and what the model answers."""


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


def make_repository(name: str, *, public: bool) -> None:
    """Make the repository unless it is there. Raises InputError if the hub refuses, or others see what they should not.

    An existing repository keeps who sees it: one that is public is not taken for a private one.
    """
    from huggingface_hub import HfApi

    with _hub_errors(name):
        HfApi().create_repo(name, private=not public, exist_ok=True)
        private = bool(HfApi().model_info(name).private)
    if private == public:
        seen, do = ("private", "make it public on its page") if private else ("public", "add --public")
        raise InputError(f"--push: {name} is there and is {seen}; {do}, or give another name")


def upload(folder: Path, name: str) -> str:
    """Send an exported folder, with the base model's licence in its card where the hub knows one; return its address.

    Files of that name in the repository are replaced, others stay. Raises InputError if the hub refuses.
    """
    from huggingface_hub import HfApi

    with _hub_errors(
        name, f"the model is in '{folder}'; to try again: hf upload {name} '{folder}' --exclude 'evals/*'"
    ):
        _add_licence(folder / CARD)
        found = HfApi().upload_folder(repo_id=name, folder_path=folder, ignore_patterns=[*NOT_SENT])
    return str(found.repo_url)


def _add_licence(card_file: Path) -> None:
    """Write the licence of the base model into a card, as the hub has it."""
    from huggingface_hub import HfApi, ModelCard
    from huggingface_hub.errors import HfHubHTTPError

    card: Any = ModelCard.load(card_file)
    if not card.data.base_model or card.data.license:
        return
    try:
        known: Any = HfApi().model_info(card.data.base_model).card_data or {}
    except HfHubHTTPError:  # gone, or not for this token
        return
    card.data.license, card.data.license_name = known.get("license"), known.get("license_name")
    card.save(card_file)


@contextmanager
def _hub_errors(name: str, then: str = "check the name, and that the token may write there") -> Iterator[None]:
    """Turn what the hub answers, or that it does not, into one line."""
    import httpx2

    try:
        yield
    except (httpx2.HTTPError, RuntimeError, ValueError) as error:  # hf_xet's are RuntimeErrors, a card's ValueErrors
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"--push: {name}: {said}; {then}") from error
