"""The image: what its Dockerfile may and may not do, and, where an engine runs, that it builds and plans a sweep."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml


@pytest.fixture
def steps(root: Path) -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile: word and the rest, continued lines joined."""
    lines = [line for line in (root / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def test_the_image_is_what_clusters_expect(steps: list[tuple[str, str]], root: Path) -> None:
    """The code at one place, which is the working directory; the user of the pods; nothing that git ignores."""
    job = yaml.safe_load((root / "clusters" / "kuberay.yaml").read_text())
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert [rest for word, rest in steps if word == "WORKDIR"][-1] == head["containers"][0]["workingDir"]
    assert head["securityContext"]["runAsUser"] == 1000
    ignored = {line.strip("/*") for line in (root / ".dockerignore").read_text().splitlines()}
    lines = (root / ".gitignore").read_text().splitlines()
    unshared = {line.strip("/*") for line in lines if line and not line.startswith("#")} - {"__pycache__", ".py[cod]"}
    assert unshared - ignored == set()
    assert "__pycache__" in ignored


def test_the_image_holds_no_key(root: Path) -> None:
    """Of .git nothing goes along that may hold an address with a token."""
    lines = (root / ".dockerignore").read_text().splitlines()
    assert {"**/.env*", "**/*.pem", "**/*.key", ".git/*"} <= set(lines)
    sent = {line.removeprefix("!.git/") for line in lines if line.startswith("!")}
    assert sent.isdisjoint({"config", "logs", "hooks", "FETCH_HEAD", "info"})
    assert "--from-env-file=.env " in (root / "docs" / "cluster.md").read_text()


@pytest.mark.slow
def test_the_image_builds_and_plans_a_sweep(root: Path) -> None:
    for engine in filter(shutil.which, ("docker", "podman")):
        if subprocess.run([engine, "info"], capture_output=True, check=False).returncode == 0:
            break
    else:
        pytest.skip("needs docker or podman, and its engine running")
    build = [engine, "build", "--quiet", "--build-arg", "TORCH=cpu", str(root)]
    image = subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip()
    plan = [engine, "run", "--rm", image, "python", "-m", "platform.sweep", "quickstart", "--dry-run"]
    done = subprocess.run(plan, capture_output=True, text=True, check=False)
    assert (done.returncode, "quickstart" in done.stdout) == (0, True), done.stderr
