"""Cluster files as a person would write them: the shipped one filled in, or changed."""

import re

VALUES = {
    "region": "us-east-1",
    "storage": "s3://bucket/runs",
    "ssh_from": "203.0.113.7/32",
    "security_group_id": "sg-0123456789abcdef0",
}


def fill(text: str, **values: str) -> str:
    """The shipped file with its values filled in as a person would."""
    for name, value in {**VALUES, **values}.items():
        text = re.sub(rf"^(  {name}: (?:&\w+ )?)FILL IN", rf"\g<1>{value}", text, flags=re.M)
    return text


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)
