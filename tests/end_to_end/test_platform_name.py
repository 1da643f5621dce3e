"""Our package named platform and the standard library's module of that name are one (docs/decisions/0001)."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

DESCRIBE = """
import importlib, inspect, json, platform, types
assert importlib.reload(platform) is platform  # as some libraries do
members = {name: value for name, value in vars(platform).items() if not name.startswith("__") and "cache" not in name}
signatures = {name: str(inspect.signature(one)) for name, one in members.items() if isinstance(one, types.FunctionType)}
types = {name: type(value).__name__ for name, value in members.items()}
print(json.dumps([platform.__file__, platform.__doc__, platform.platform(), types, signatures]))
"""


def python(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in `folder`, without the caller's settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_"))}
    return subprocess.run([sys.executable, *args], cwd=folder, env=env, capture_output=True, text=True)


def test_nothing_of_the_standard_module_is_lost_and_submodules_are_found(root: Path, tmp_path: Path) -> None:
    ours, standard = (json.loads(python(folder, "-c", DESCRIBE).stdout) for folder in (root, tmp_path))
    assert (ours[0], ours[1:3]) == (str(root / "platform" / "__init__.py"), standard[1:3])
    for found, expected in zip(ours[3:], standard[3:], strict=True):
        assert expected.items() <= found.items()
    assert {"system", "uname", "mac_ver", "libc_ver"} <= standard[4].keys()
    for path in (root / "platform").glob("[a-z]*"):
        spec = importlib.util.find_spec(f"platform.{path.stem}")
        assert spec is not None, path
        assert Path(spec.origin or "").is_relative_to(root / "platform")
        assert path.stem not in standard[3], "it hides a member"


def test_python_m_platform_prints_what_it_always_did(root: Path, tmp_path: Path) -> None:
    usual = python(tmp_path, "-I", "-m", "platform", "terse", "--nonaliased").stdout
    assert python(root, "-m", "platform", "terse", "--nonaliased").stdout == usual != ""


def test_in_another_folder_platform_is_the_standard_module(root: Path, tmp_path: Path) -> None:
    """Installing puts nothing of ours on the path; README.md says what Python answers then."""
    (quoted,) = re.findall("Python says `([^`]+)`", " ".join((root / "README.md").read_text(encoding="utf-8").split()))
    done = python(tmp_path, "-m", "platform.sweep")
    assert (done.returncode, done.stdout) == (1, "")
    assert quoted in done.stderr
