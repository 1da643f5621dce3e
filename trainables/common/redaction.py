"""Replaces secrets in what is printed or kept: passwords in URLs, and the values of secret environment variables."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote

HIDDEN = "***"
SECRET_NAME = re.compile(
    r"(?i)(token|secret|password|passwd|credential|connection_string|(access|account|api)[_-]?key(_id)?)$"
)
"""Names of settings and environment variables whose values are secret."""
SHORTEST = 6
"""Characters of a secret: a shorter value may be a word of any text, and is replaced in URLs only."""

_USER = re.compile(r"(?<=://)[^/\s'\"][^\s'\"]*@")
"""Up to the last @: a password that was not percent-encoded may hold a slash, and an @. After file:/// is a path."""
_QUERY = re.compile(r"(?i)([?&][\w-]*(?:password|passwd|token|secret|signature|key)[\w-]*=)[^&\s'\"]+")


def redact(text: str) -> str:
    """Return `text` with `***` in the place of every secret."""
    text = _QUERY.sub(rf"\g<1>{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))
    for secret in _secrets():
        text = text.replace(secret, HIDDEN)
    return text


def has_credentials(place: str) -> bool:
    """Whether a path or URL holds a user name, a password or a token."""
    return bool(_USER.search(place) or _QUERY.search(place))


def _secrets() -> list[str]:
    """Return the secrets, the longest first: one may begin with another."""
    found = {value for name, value in os.environ.items() if SECRET_NAME.search(name)}
    found |= {user[:-1].partition(":")[2] for user in _USER.findall(os.environ.get("MLFLOW_TRACKING_URI", ""))}
    found |= {form for secret in found for form in (unquote(secret), quote(secret), quote(secret, safe=""))}
    return sorted((secret for secret in found if len(secret) >= SHORTEST), key=len, reverse=True)
