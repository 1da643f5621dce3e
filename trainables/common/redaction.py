"""Replaces secrets in what is printed or kept: passwords in URLs, and the values of secret environment variables."""

import base64
import json
import os
import re
from urllib.parse import quote, quote_plus, unquote

SECRET_MASK = "***"
SECRET_NAME_PATTERN = re.compile(
    r"(?i)(token|secret|password|passwd|credential|connection_string|(access|account|api)[_-]?key(_id)?)$"
)
"""Names of settings and environment variables whose values are secret."""
MIN_SECRET_LENGTH = 6
"""Characters of a secret: a shorter value may be a word of any text, and is replaced in URLs only."""

_USER = re.compile(r"(?<=://)(?:[^/\s'\"][^\s'\"]*|[^/\s@]+)@")
"""Up to the last @: a password that was not percent-encoded may hold a slash, and an @; or, without these, a quotation
mark. After file:/// is a path."""
_QUERY = re.compile(
    r"(?i)((?:[?&;]|\\u0026)(?!orderByKey=)"
    r"(?:[\w-]*(?:password|passwd|token|secret|signature|credential|key)[\w-]*|sig)=)[^&;\\\s'\"]+"
)
"""A parameter of an address, in JSON and HTML too; `sig` is Azure's. What is left out is MLflow's order of runs."""
_HEADER = re.compile(r"(?i)(authorization['\"]?\s*[:=]\s*b?['\"]?(?:basic|bearer|digest|token)\s+)[^\s'\"]+")


def redact(text: str) -> str:
    """Return `text` with `***` in the place of every secret."""
    text = _QUERY.sub(rf"\g<1>{SECRET_MASK}", _USER.sub(f"{SECRET_MASK}@", text))
    text = _HEADER.sub(rf"\g<1>{SECRET_MASK}", text)
    found = {value for name, value in os.environ.items() if SECRET_NAME_PATTERN.search(name)}
    user = os.environ.get("MLFLOW_TRACKING_URI", "").partition("://")[2].rpartition("@")[0]
    found |= {user.partition(":")[2], base64.b64encode(user.encode()).decode()}  # as Basic authorisation sends it
    found |= {form for secret in found for form in (unquote(secret), quote(secret), quote(secret, safe=""))}
    found |= {form for secret in found for form in (quote_plus(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1])}
    for secret in sorted(found, key=len, reverse=True):  # the longest first: one may begin with another
        if len(secret) >= MIN_SECRET_LENGTH:
            text = text.replace(secret, SECRET_MASK)
    return text


def has_credentials(place: str) -> bool:
    """Whether a path or URL holds a user name, a password or a token."""
    return bool(_USER.search(place) or _QUERY.search(place))
