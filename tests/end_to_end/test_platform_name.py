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

QUESTIONS = ("architecture", "machine", "node", "platform", "processor", "python_build", "python_version", "release")


def python(folder: Path, *args: str) -> str:
    """Return what Python prints when it runs with these arguments in `folder`, without the caller's settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_"))}
    done = subprocess.run([sys.executable, *args], cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def standard() -> ModuleType:
    """Load the standard library's file under another name, apart from anything of ours."""
    spec = importlib.util.spec_from_file_location("standard", Path(os.__file__).with_name("platform.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def submodules(root: Path) -> set[str]:
    """Return the names of our direct submodules and sub-packages."""
    folder = root / "platform"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return modules | {path.relative_to(folder).parts[0] for path in folder.glob("*/**/*.py")}


def describe(module: ModuleType) -> dict[str, str]:
    """Return a line for each member of a module but its caches: its type and, for functions, the signature."""
    members = {name: value for name, value in vars(module).items() if not name.startswith("__") and "cache" not in name}
    return {
        name: type(value).__name__ + (str(inspect.signature(value)) if isinstance(value, FunctionType) else "")
        for name, value in members.items()
    }


def test_submodules_are_found_and_the_standard_members_answer(root: Path, submodules: set[str]) -> None:
    for name in submodules:
        spec = importlib.util.find_spec(f"platform.{name}")
        assert spec is not None, name
        assert Path(spec.origin or "").is_relative_to(root / "platform")
    assert platform.system() == os.uname().sysname
    assert platform.node() == os.uname().nodename


def test_the_script_pytest_finds_them_too(root: Path) -> None:
    """It imports the standard library's module long before the root is on sys.path; `python -m pytest` does not."""
    script = str(Path(sys.executable).with_name("pytest"))
    chosen = f"{Path(__file__).relative_to(root)}::{test_submodules_are_found_and_the_standard_members_answer.__name__}"
    assert "1 passed" in python(root, script, "-q", "-p", "no:cacheprovider", chosen)


def test_nothing_of_the_standard_module_is_lost(root: Path, standard: ModuleType) -> None:
    code = f"""
import json, platform, sys
sys.path.insert(0, "tests")
from tests.end_to_end.test_platform_name import describe
answers = {{name: repr(getattr(platform, name)()) for name in {QUESTIONS}}}
print(json.dumps([platform.__file__, platform.__doc__, describe(platform), answers]))
"""
    file, doc, members, answers = json.loads(python(root, "-c", code))
    assert file == str(root / "platform" / "__init__.py")
    assert doc == standard.__doc__
    expected = describe(standard)
    assert {"system", "uname", "mac_ver", "libc_ver", "uname_result"} <= expected.keys()
    assert {name: members.get(name) for name in expected} == expected
    assert answers == {name: repr(getattr(standard, name)()) for name in QUESTIONS}


def test_no_submodule_is_named_like_a_member_of_the_standard_module(submodules: set[str], standard: ModuleType) -> None:
    members = {name for name in vars(standard) if not name.startswith("__")} | MEMBERS_ELSEWHERE
    assert submodules & members == set()


def test_reload_keeps_members_and_submodules(root: Path) -> None:
    code = """
import importlib, platform
assert importlib.reload(platform) is platform
import platform.__main__
print(platform.system())
"""
    assert python(root, "-c", code).strip() == os.uname().sysname


@pytest.mark.parametrize("args", [(), ("--terse",), ("--nonaliased",), ("terse", "nonaliased")])
def test_python_m_platform_prints_what_it_always_did(args: tuple[str, ...], root: Path, tmp_path: Path) -> None:
    assert python(root, "-m", "platform", *args) == python(tmp_path, "-I", "-m", "platform", *args)


def test_the_readme_says_what_python_answers_in_another_folder(root: Path, tmp_path: Path) -> None:
    (quoted,) = re.findall("Python says `([^`]+)`", (root / "README.md").read_text(encoding="utf-8"))
    done = subprocess.run([sys.executable, "-m", "platform.sweep"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert quoted in done.stderr


def test_installing_puts_nothing_of_ours_on_the_path(root: Path, tmp_path: Path) -> None:
    code = """
import importlib.util, json, sys
names = ["platform", "trainables", "search_spaces", "analysis"]
specs = {name: importlib.util.find_spec(name) for name in names}
print(json.dumps([{name: spec and spec.origin for name, spec in specs.items()}, sys.path]))
"""
    origins, path = json.loads(python(tmp_path, "-c", code))
    standard_file = str(Path(os.__file__).with_name("platform.py"))
    assert origins == {"platform": standard_file, "trainables": None, "search_spaces": None, "analysis": None}
    assert str(root) not in path


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

    expected = {"system": os.uname().sysname, "node": os.uname().nodename}
    assert ray.get(look.remote()) == expected | {"submodule": str(root / "platform" / "__main__.py")}
