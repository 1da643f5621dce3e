"""An exported model folder as a repository of the Hugging Face hub, private unless asked otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainables.common.errors import InputError


def open_repository(name: str, *, public: bool) -> str:
    """Make a repository unless it is there; return its id, ORG/NAME.

    An existing one keeps who sees it. Raises InputError if others see it than should, or the hub refuses.
    """
    from huggingface_hub import HfApi

    with _hub_errors(name, "it needs a token that may write: set HF_TOKEN, or log in with 'hf auth login'"):
        repository = HfApi().create_repo(name, private=not public, exist_ok=True).repo_id
        private = bool(HfApi().model_info(repository).private)
    if private == public:
        seen, do = ("private", "make it public on its page") if private else ("public", "add --public")
        raise InputError(f"--push: {name} is there and is {seen}; {do}, or give another name")
    return repository


def upload(folder: Path, name: str) -> str:
    """Send an exported folder to a repository, where it replaces files of the same names; return the address."""
    from huggingface_hub import HfApi

    again = f"hf upload {name} '{folder}'"
    with _hub_errors(name, f"the model is in '{folder}'; to try again: {again}"):
        found = HfApi().upload_folder(repo_id=name, folder_path=folder)
    return str(found.repo_url)


@contextmanager
def _hub_errors(name: str, then: str) -> Iterator[None]:
    """Turn what the hub answers, or that it does not, into one line that ends with what to do."""
    import httpx2

    try:
        yield
    except (httpx2.HTTPError, OSError, RuntimeError, ValueError) as error:  # hf_xet's are RuntimeErrors
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"--push: {name}: {said}; {then}") from error
