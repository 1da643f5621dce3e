"""Our package named platform and the standard library's module of that name are one (docs/decisions/0001)."""

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import platform

# Members that the standard module has in other supported versions of Python.
MEMBERS_ELSEWHERE = {"android_ver", "ios_ver", "java_ver", "invalidate_caches", "subprocess"}


def python(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in `folder`, without the caller's settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_"))}
    return subprocess.run([sys.executable, *args], cwd=folder, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def standard() -> ModuleType:
    """Load the standard library's file under another name, apart from anything of ours."""
    spec = importlib.util.spec_from_file_location("standard", Path(os.__file__).with_name("platform.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def describe(module: ModuleType) -> dict[str, str]:
    """Return a line for each member of a module but its caches: its type and, for functions, the signature."""
    members = {name: value for name, value in vars(module).items() if not name.startswith("__") and "cache" not in name}
    return {
        name: type(value).__name__ + (str(inspect.signature(value)) if isinstance(value, FunctionType) else "")
        for name, value in members.items()
    }


def test_submodules_are_found_and_hide_no_member(root: Path, standard: ModuleType) -> None:
    folder = root / "platform"
    submodules = {path.relative_to(folder).parts[0].removesuffix(".py") for path in folder.rglob("*.py")} - {"__init__"}
    for name in submodules:
        spec = importlib.util.find_spec(f"platform.{name}")
        assert spec is not None, name
        assert Path(spec.origin or "").is_relative_to(folder)
    assert submodules & ({name for name in vars(standard) if not name.startswith("__")} | MEMBERS_ELSEWHERE) == set()


def test_nothing_of_the_standard_module_is_lost(root: Path, standard: ModuleType) -> None:
    """Also after a reload, as some libraries do."""
    code = """
import importlib, json, platform, sys
assert importlib.reload(platform) is platform
import platform.__main__
sys.path.insert(0, "tests")
from tests.end_to_end.test_platform_name import describe
print(json.dumps([platform.__file__, platform.__doc__, describe(platform), platform.platform()]))
"""
    file, doc, members, answer = json.loads(python(root, "-c", code).stdout)
    assert (file, doc) == (str(root / "platform" / "__init__.py"), standard.__doc__)
    expected = describe(standard)
    assert {"system", "uname", "mac_ver", "libc_ver", "uname_result"} <= expected.keys()
    assert {name: members.get(name) for name in expected} == expected
    assert answer == standard.platform()


def test_python_m_platform_prints_what_it_always_did(root: Path, tmp_path: Path) -> None:
    usual = python(tmp_path, "-I", "-m", "platform", "terse", "--nonaliased").stdout
    assert python(root, "-m", "platform", "terse", "--nonaliased").stdout == usual != ""


def test_in_another_folder_platform_is_the_standard_module(root: Path, tmp_path: Path) -> None:
    """Installing puts nothing of ours on the path; README.md says what Python answers then."""
    (quoted,) = re.findall("Python says `([^`]+)`", " ".join((root / "README.md").read_text(encoding="utf-8").split()))
    done = python(tmp_path, "-m", "platform.sweep")
    assert (done.returncode, done.stdout) == (1, "")
    assert quoted in done.stderr


@pytest.mark.usefixtures("ray_session")
def test_ray_workers_have_members_and_submodules(root: Path) -> None:
    import ray

    # an environment of its own, so that no worker runs it that was started ahead of any, on the standard module
    @ray.remote(runtime_env={"env_vars": {"PYTHONPATH": str(root), "OF_ITS_OWN": "1"}})
    def look() -> dict[str, Any]:
        import importlib.util

        import platform

        spec = importlib.util.find_spec("platform.__main__")
        return {"system": platform.system(), "node": platform.node(), "submodule": spec and spec.origin}

    expected = {"system": platform.system(), "node": platform.node()}
    assert ray.get(look.remote()) == expected | {"submodule": str(root / "platform" / "__main__.py")}
