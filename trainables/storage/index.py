"""What a store held when it was last looked at: objects by name, quick to find below a folder."""

from __future__ import annotations

from trainables.storage.complete import WHOLE
from trainables.storage.object_store import Entry


class Listing:
    """In groups of the first two parts of the names (`trials/ID`): thousands of trials are looked up quickly."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Entry]] = {}

    def replace(self, found: dict[str, Entry]) -> None:
        self.groups = {}
        for name, entry in found.items():
            self.add(name, entry)

    def add(self, name: str, entry: Entry) -> None:
        self.groups.setdefault(_group(name), {})[name] = entry

    def drop(self, name: str) -> None:
        self.groups.get(_group(name), {}).pop(name, None)

    def has(self, name: str) -> bool:
        """Whether there is an object, or a folder that never changes."""
        group = self.groups.get(_group(name), {})
        return name in group or f"{name}/{WHOLE}" in group

    def below(self, name: str) -> dict[str, Entry]:
        """An object, or everything below a folder; of "" everything."""
        if "/" in name:
            group = self.groups.get(_group(name), {})
            return {key: entry for key, entry in group.items() if key == name or key.startswith(f"{name}/")}
        groups = [group for key, group in self.groups.items() if not name or key.split("/")[0] == name]
        return {key: entry for group in groups for key, entry in group.items()}

    def inside(self, folder: str) -> dict[str, Entry]:
        """The objects in a folder itself."""
        depth = folder.count("/") + 1
        return {key: entry for key, entry in self.below(folder).items() if key.count("/") == depth}


def _group(name: str) -> str:
    return "/".join(name.split("/")[:2])
