"""Jobs of Kubernetes in the place of a job server's: each is a RayJob of KubeRay, made and followed by kubectl."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from platform.cluster.kuberay_checks import ONCE, read_container
from trainables.common.errors import InputError, last_line_of

POLL_SECONDS = 2.0
PREFIX = "unlearning/"
"""Of the annotations that keep a job's metadata."""
RAYJOBS, SUBMITTER = "rayjobs.ray.io", "ray-job-submitter"
"""The container that KubeRay adds to the head's pod in SidecarMode: `ray job submit`, which prints the job's log."""
LONGEST_NAME = 47
"""Characters of a RayJob's name: its cluster's has at most 53, and ends in six of its own."""
SUFFIX_LENGTH = len("-20261123-101010-ab12")
"""Characters at the end of a job's id that make it the only one."""
RAYS_OWN = re.compile(r"\S+ \S+\t[A-Z]+ \w+\.py:\d+ -- |Running entrypoint for job |Waiting for Ray Dashboard ")
"""How lines of `ray job submit` itself begin."""
STATUS_MESSAGE = re.compile(r" -- Status message: (?:Job entrypoint command failed with exit code (-?\d+))?")
"""In the last line of a failed job, which repeats the end of its log."""
FINAL_STATUSES = (1, 2, 3)
"""Exit statuses of a sweep that another try does not change: failed trials, bad input, a budget."""
LONGEST_LINE = 2**24


@dataclass
class KubernetesJobs:
    """Stands for Ray's JobSubmissionClient. `manifest`: the RayJob of which each job is a copy."""

    manifest: dict[str, Any]
    exit_codes: dict[str, int] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        """kubectl, in the manifest's namespace where it names one."""
        namespace = self.manifest["metadata"].get("namespace")
        return ["kubectl", *(["--namespace", namespace] if namespace else [])]

    @property
    def _head(self) -> dict[str, Any]:
        return self.manifest["spec"]["rayClusterSpec"]["headGroupSpec"]

    @property
    def storage(self) -> str:
        """Where the results are, by the variable of the head."""
        return next(each["value"] for each in read_container(self._head)["env"] if each["name"] == "UNLEARN_STORAGE")

    def submit_job(self, entrypoint: str, submission_id: str, metadata: dict[str, str]) -> str:
        """Make a RayJob that runs `entrypoint`; return its name. Raises RuntimeError where Kubernetes refuses."""
        name = re.sub("[^a-z0-9]+", "-", submission_id.lower())
        name = name[:-SUFFIX_LENGTH][: LONGEST_NAME - SUFFIX_LENGTH].rstrip("-") + name[-SUFFIX_LENGTH:]
        job = copy.deepcopy(self.manifest)
        kept = {PREFIX + key: value for key, value in metadata.items()}
        job["metadata"] |= {"name": name, "annotations": job["metadata"].get("annotations", {}) | kept}
        if set(ONCE) & set(shlex.split(entrypoint)):
            job["spec"]["backoffLimit"] = 0
        elif "--resume" not in shlex.split(entrypoint):
            entrypoint += " --resume"
        job["spec"]["entrypoint"] = entrypoint
        self._run("create", "--filename=-", stdin=json.dumps(job))
        return name

    def list_jobs(self) -> list[Any]:
        """Return the RayJobs of the namespace: name, status, and the metadata of those that were made here."""
        return [
            SimpleNamespace(
                submission_id=job["metadata"]["name"],
                status=_read_status(job),
                metadata={
                    key.removeprefix(PREFIX): value for key, value in job["metadata"].get("annotations", {}).items()
                },
            )
            for job in self._get(RAYJOBS)
        ]

    def get_job_info(self, job: str) -> Any:
        """Return status, exit status (None where it did not end by itself) and message of a job."""
        found = self._get(RAYJOBS, job)
        state = _read_status(found[0] if found else None)
        status = found[0].get("status", {}) if found else {"message": "it was deleted"}
        parts = [status[key].partition(", last available logs")[0] for key in ("reason", "message") if status.get(key)]
        return SimpleNamespace(
            status=state,
            driver_exit_code=0 if state == "SUCCEEDED" else self.exit_codes.get(job),
            message=": ".join(parts),
        )

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        """Yield the lines of a job's log to its end, of all its tries; tell on the error stream what it waits for."""
        followed, last, last_waiting, finished = "", "", "", set[str]()
        while found := self._get(RAYJOBS, job):
            status = found[0].get("status", {})
            head = f"ray.io/cluster={status.get('rayClusterName')},ray.io/node-type=head"
            pods = self._get("pods", "--selector", head) if status.get("rayClusterName") else []
            pod = pods[0]["metadata"]["name"] if pods and _has_started(pods[0]) else None
            if pod and pod not in finished:
                self.exit_codes.pop(job, None)  # of the try before
                followed, last = pod, last if pod == followed else ""  # each node has its own clock
                async with contextlib.aclosing(self._follow(pod, last)) as lines:
                    async for time, line in lines:
                        last = time
                        if ended := STATUS_MESSAGE.search(line):
                            finished.add(pod)
                            self.exit_codes |= {job: int(ended[1])} if ended[1] else {}
                            break
                        if not RAYS_OWN.match(line):
                            yield line
            if self.exit_codes.get(job) in FINAL_STATUSES and found[0]["spec"].get("backoffLimit"):
                self._run("patch", RAYJOBS, job, "--type=merge", "--patch", '{"spec": {"backoffLimit": 0}}')
            if _read_status(found[0]).is_terminal():
                return
            if (waiting := _describe_waiting(status, pods)) not in ("", last_waiting):
                print(f"{job}: {waiting}", file=sys.stderr, flush=True)
                last_waiting = waiting
            await asyncio.sleep(POLL_SECONDS)

    def run_command(self, module: str, arguments: Sequence[str]) -> int:
        """Run a short command in a pod like the head's, without Ray and GPUs; return its exit status.

        Raises InputError where kubectl does not reach the cluster.
        """
        try:
            self._run("version")
        except RuntimeError as error:
            hint = "try `kubectl get pods`, choose a context with `kubectl config use-context`"
            raise InputError(f"--cluster: kubectl does not reach the cluster: {error}; {hint}") from error
        name = f"unlearning-{module.rpartition('.')[2]}-{uuid.uuid4().hex[:4]}"
        head = read_container(self._head)
        container = {key: value for key, value in head.items() if key not in ("resources", "ports", "args")}
        container["command"] = ["python", "-m", module, *arguments]
        spec = self._head["template"]["spec"] | {"containers": [container], "activeDeadlineSeconds": 600}
        options = ["--image", head["image"], "--restart=Never", "--attach", "--rm", "--quiet"]
        options += ["--pod-running-timeout=10m", "--overrides", json.dumps({"apiVersion": "v1", "spec": spec})]
        command = [*self.command, "run", name, *options]
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, start_new_session=True, check=False).returncode
        except KeyboardInterrupt:
            self._run("delete", "pod", name, "--wait=false", "--ignore-not-found")
            raise

    async def _follow(self, pod: str, last: str) -> AsyncGenerator[tuple[str, str]]:
        """Yield time and text of the log's lines after `last`, until kubectl ends: the log does, or a connection."""
        since = ["--since-time", last] if last else []
        child = await asyncio.create_subprocess_exec(
            *[*self.command, "logs", pod, "--container", SUBMITTER, "--follow", "--timestamps", *since],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            limit=LONGEST_LINE,
            start_new_session=True,  # an interrupt is meant for us
        )
        try:
            assert child.stdout is not None
            async for line in child.stdout:
                stamp, _, text = line.decode(errors="replace").partition(" ")
                if not last or _sort_stamp(stamp) > _sort_stamp(last):
                    yield stamp, text
            await child.wait()
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGTERM)  # child.terminate() would take its exit status from asyncio
                await child.wait()

    def _get(self, kind: str, *which: str) -> list[dict[str, Any]]:
        """Return objects of Kubernetes, none where one is asked for by a name that is not there."""
        text = self._run("get", kind, *which, "--output=json", "--ignore-not-found")
        found = json.loads(text) if text.strip() else {"items": []}
        return found.get("items", [found])

    def _run(self, *words: str, stdin: str = "") -> str:
        """Return what kubectl prints. Raises RuntimeError with its last line where it fails."""
        command = [*self.command, *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, start_new_session=True)
        if done.returncode:
            raise RuntimeError(last_line_of(done.stderr, f"{shlex.join(command)} failed"))
        return done.stdout


def _sort_stamp(stamp: str) -> tuple[str, str]:
    """Return seconds and nanoseconds of a log's time, whose fraction ends where only zeros would follow."""
    return stamp[:19], stamp[20:].partition("Z")[0].ljust(9, "0")


def _read_status(job: dict[str, Any] | None) -> Any:
    """Return the JobStatus of a RayJob; a deleted one was stopped."""
    from ray.job_submission import JobStatus

    if job is None or "deletionTimestamp" in job["metadata"]:
        return JobStatus.STOPPED
    match job.get("status", {}).get("jobDeploymentStatus"):
        case "Complete":
            return JobStatus(job["status"].get("jobStatus", "SUCCEEDED"))
        case "Failed" | "ValidationFailed":
            return JobStatus.FAILED
    return JobStatus.RUNNING


def _list_containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _has_started(pod: dict[str, Any]) -> bool:
    return any(each["name"] == SUBMITTER and "waiting" not in each.get("state", {}) for each in _list_containers(pod))


def _describe_waiting(status: dict[str, Any], pods: list[dict[str, Any]]) -> str:
    """Return what a job that does not run waits for: KubeRay, a node, an image."""
    state = status.get("jobDeploymentStatus") or "waits for KubeRay's operator"
    causes = []
    for pod in pods:
        states = [each.get("state", {}) for each in _list_containers(pod)]
        conditions = pod.get("status", {}).get("conditions", [])
        causes += [each["waiting"] for each in states if "waiting" in each]
        causes += [each for each in conditions if (each["type"], each["status"]) == ("PodScheduled", "False")]
    words = {f"{cause.get('reason')} {cause.get('message', '')}".strip() for cause in causes}
    return "" if state == "Running" else "; ".join([state, *sorted(words)])
