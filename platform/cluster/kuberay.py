"""A sweep as a RayJob of KubeRay, which kubectl makes, follows and ends."""

from __future__ import annotations

import copy
import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from platform.cluster.check import ClusterFile, find_problems
from trainables.common.errors import InputError, last_line_of

ONCE = ("--new", "--retry-failed")
"""Options of a sweep that set aside what it has done: a retry would do so again."""


def create_job(file: ClusterFile, name: str, arguments: Sequence[str]) -> int:
    """Make a RayJob like the file's that runs `platform.sweep` with `arguments`; print how to follow and to stop it.

    Raises InputError where the file cannot be used or Kubernetes refuses it.
    """
    if problems := find_problems(file):
        check = f"python -m platform.cluster check {shlex.quote(str(file.path))}"
        raise InputError(f"--cluster: '{file.path}': {problems[0]}; all that is to mend: {check}")
    if shutil.which("kubectl") is None:
        raise InputError("--cluster: no kubectl here; install it, and let it reach the cluster (kubectl get pods)")
    job, words = copy.deepcopy(file.content), list(arguments)
    namespace = job["metadata"].get("namespace")
    job["metadata"].pop("name", None)
    job["metadata"]["generateName"] = f"{name.replace('_', '-')}-"
    if set(ONCE) & set(words):
        job["spec"]["backoffLimit"] = 0
    elif "--resume" not in words:
        words.append("--resume")
    job["spec"]["entrypoint"] = f"python -m platform.sweep {shlex.join(words)}"
    kubectl = ["kubectl", *(["--namespace", namespace] if namespace else [])]
    command = [*kubectl, "create", "--filename=-", "--output=name"]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"--cluster: kubectl: {last_line_of(done.stderr, 'it failed')}")
    made, typed = done.stdout.strip(), shlex.join(kubectl)
    cluster = f"$({typed} get {made} --output jsonpath={{.status.rayClusterName}})"
    print(f"submitted {made}, which goes on without this machine")
    print(f"its state: {typed} get {made}")
    print(
        f"its log:   {typed} logs --follow --tail=-1 --container ray-job-submitter "
        f"--selector ray.io/node-type=head,ray.io/cluster={cluster}"
    )
    print(f"stop it:   {typed} delete {made}")
    return 0
