"""Addresses of object stores: the file system of each, and what to set if it does not open."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow
import pyarrow.fs

from trainables.common.errors import InputError, Unreachable
from trainables.common.redaction import has_credentials

CONNECT_SECONDS, GOOGLE_SECONDS = 10.0, 30
LOGIN = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), AWS_DEFAULT_REGION, and AWS_ENDPOINT_URL for "
    "a store other than AWS",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfs": "AZURE_STORAGE_CONNECTION_STRING or what azure-identity reads",
}
"""What to set, by scheme."""


def connect(uri: str) -> tuple[Any, str]:
    """Return pyarrow's file system at an address, and the path in it.

    Raises InputError if the scheme is unknown or the address holds a password.
    """
    try:
        if has_credentials(uri):
            raise InputError("--storage: the address holds a user name or password; leave them out and " + _login(uri))
        try:
            files, base = pyarrow.fs.FileSystem.from_uri(_limit_google_retries(uri))
        except pyarrow.ArrowInvalid as error:
            if "Unrecognized filesystem type" not in str(error):
                raise
            files, base = pyarrow.fs.FileSystem.from_uri(f"fsspec+{uri}")
        if files.type_name == "s3":
            files = _set_s3_options(files, uri)
    except ImportError as error:
        raise InputError(f"--storage: '{uri}' needs another package: {error}") from error
    except ValueError as error:
        known = "a folder, file://, s3://, gs://, abfs://, or another scheme of fsspec"
        raise InputError(f"--storage: '{uri}' is no address of a storage: {error}; known: {known}") from error
    except (OSError, pyarrow.ArrowException) as error:
        raise Unreachable(explain_failure(uri, error)) from error
    if not base.strip("/"):
        raise InputError(f"--storage: '{uri}' names no bucket; write it like s3://bucket/folder")
    return files, base.rstrip("/")


def _limit_google_retries(uri: str) -> str:
    """Return an address of Google's store that gives up after GOOGLE_SECONDS instead of a quarter of an hour."""
    if not uri.startswith(("gs://", "gcs://")) or "retry_limit_seconds" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={GOOGLE_SECONDS}"


def _set_s3_options(files: Any, uri: str) -> Any:
    """Return the store set to one request for a small object and a slow network, unless its address sets more."""
    asked = dict(parse_qsl(urlsplit(uri).query))
    if not asked.keys() <= {"region", "scheme", "endpoint_override"}:
        return files
    settings = {"region": files.region, "endpoint_override": server(), **asked}
    return pyarrow.fs.S3FileSystem(**settings, allow_delayed_open=True, connect_timeout=CONNECT_SECONDS)


def server() -> str | None:
    """Return the server of s3://, None for AWS."""
    named = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
    return next(filter(None, named), None)


def explain_failure(uri: str, error: Exception) -> str:
    """Return the store's error, and what to set."""
    reason = (str(error).splitlines() or [repr(error)])[0].split(" (Request ID")[0]
    return f"--storage: '{uri}' cannot be used: {reason}; {_login(uri)}"


def _login(uri: str) -> str:
    scheme = uri.split("://")[0]
    return f"set {LOGIN[scheme]}" if scheme in LOGIN else "set what its package reads"
