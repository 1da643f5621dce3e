"""`make rehearsal-slurm`: clusters/slurm.sbatch on a real Slurm, whose three nodes are pretend hosts of this machine.

A sweep on two nodes is submitted, preempted by a job of a better partition and queued again; it goes on on two nodes,
the first of which loses its power in the middle of a trial; Slurm queues it again, and its new driver takes over the
lock of the one that is gone. Exit status: as of rehearse.py.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from platform.state import manifest
from tests.faults.checks import litter
from tests.faults.sweep import Watch
from tests.rehearsal import judge, rehearse
from tests.rehearsal.lab import COUNT, ROOT, SETTINGS_OF_CALLER, Lab, require, wait_until
from tests.rehearsal.rehearse import SWEEP, ask_as_another_user, results, step, training_trials
from trainables.storage.file_names import PROGRESS
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import open_storage

FILE = ROOT / "clusters" / "slurm.sbatch"
TOOLS = "slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client tini:tini"
CHECK, SUBMIT = "python -m platform.cluster check clusters/slurm.sbatch", "sbatch clusters/slurm.sbatch"
"""As docs/cluster.md says it; the file's place takes a copy of it that is filled in."""
TRIALS = ["--only", "method=ga,gd,npo", "--set", "training.max_steps=64"]
"""Nine trials, of so many steps that an idle machine is not done with all of them before a node is lost."""
WAIT = 1800.0
"""Seconds that a wait for a trial may take on a machine that is busy with other work."""
CONTROLLER, NODES = 17817, 17818
"""Ports of Slurm's own daemons."""
CONFIGURATION = """
ClusterName=rehearsal
SlurmctldHost={name}({net}.1)
SlurmctldPort={controller}
SlurmdPort={nodes}
SlurmUser=root
AuthType=auth/none
AuthInfo=cred_expire=10
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=60
SlurmdTimeout=30
ReturnToService=2
MpiDefault=none
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdSpoolDir=/run/slurmd
SlurmdPidFile=/run/slurmd.pid
SlurmdParameters=config_overrides
{lines}
PartitionName=sweeps Nodes=ALL Default=YES PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=2
"""
"""Without munge: nobody but this machine reaches the daemons. A job is queued again after cred_expire, not 120 s."""


class SlurmLab(Lab):
    """The pretend hosts as nodes of a Slurm whose controller, and login node, is this machine."""

    @property
    def configuration(self) -> Path:
        return self.common / "slurm.conf"

    def start_slurm(self) -> None:
        lines = (f"NodeName={self.name}-{n} NodeAddr={self.net}.{10 + n} CPUs=1 State=UNKNOWN" for n in range(COUNT))
        known = {"net": self.net, "folder": self.common, "controller": CONTROLLER, "nodes": NODES}
        text = CONFIGURATION.format(name=socket.gethostname().partition(".")[0], lines="\n".join(lines), **known)
        self.configuration.write_text(text)
        self.configuration.with_name("cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.common / "state").mkdir()
        self.begin("slurmctld", "-D", "-f", str(self.configuration))
        for host in range(COUNT):
            self.hosts("start", host)
        wait_until(120, "all nodes are idle", lambda: self.slurm("sinfo", "-h", "-o", "%D %t") == f"{COUNT} idle")

    def slurm(self, *words: str) -> str:
        """A command of Slurm's, as a person types it on the login node, in the checkout."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS_OF_CALLER)}
        env = clean | {"SLURM_CONF": str(self.configuration), "HOME": str(self.common / "home")}
        env |= {"NO_COLOR": "1", "COLUMNS": "160"}
        done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        require(done.returncode == 0, f"{' '.join(words)}: {done.stderr}")
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """Submit a script as the page says, with more options; return the job's id."""
        command, *rest = self.words_of(SUBMIT)
        typed = [command, f"--output={self.common}/%j.out", *options, *(script for _ in rest)]
        return self.slurm(*typed).rpartition(" ")[2]

    def job(self, number: str) -> dict[str, str]:
        return dict(re.findall(r"(\w+)=(\S*)", self.slurm("scontrol", "show", "job", number)))

    def log(self, number: str) -> str:
        place = self.common / f"{number}.out"
        return place.read_text(errors="replace") if place.exists() else ""

    def wait_for_end(self, number: str) -> None:
        def over() -> bool:
            return self.job(number)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING")

        wait_until(WAIT, f"job {number} ends", over)
        ended = self.job(number)["JobState"], self.job(number)["ExitCode"]
        require(ended == ("COMPLETED", "0:0"), f"job {number} is {ended}:\n{self.log(number)[-3000:]}")

    def wait_for_start(self, number: str, restarts: int) -> None:
        def running() -> bool:
            found = self.job(number)
            return (found["JobState"], found["Restarts"]) == ("RUNNING", str(restarts))

        wait_until(600, f"job {number} runs for the {restarts + 1}. time", running)

    def write_script(self, name: str, sweep: list[str], storage: str) -> str:
        """Write the shipped file filled in, for nodes of one CPU; return its path. `check` accepts it."""
        text = FILE.read_text().replace("--partition=FILL IN", "--partition=sweeps")
        text = text.replace('"FILL IN"', f"/srv/shared/{storage}").replace(
            "FILL IN --resume", shlex.join([*sweep, "--resume"])
        )
        text = text.replace("#SBATCH --gpus-per-node=8\n", "").replace("--cpus-per-task=64", "--cpus-per-task=1")
        path = self.common / name
        path.write_text(text)
        said = self.run(*self.words_of(CHECK)[:-1], str(path))
        require("can be used; start it with: sbatch" in said, said)
        return str(path)


def lose_nodes(lab: SlurmLab, store: Storage, number: str) -> str:
    """Preempt the job and later cut the power of its first node; return the trial that was under way then."""
    with step("submitted: a first result on two nodes; another user asks all ports"):
        lab.wait_for_start(number, restarts=0)
        wait_until(WAIT, "a first result", lambda: require_running(lab, number) or results(store))
        found = ask_as_another_user(lab, 0)
        found += [line for line in ask_as_another_user(lab, 1) if not line.startswith("not asked")]
        require_running(lab, number)
        require(not found, f"another user of the nodes: {found}")
    with step("preempted: a job of a better partition takes the first node"):
        node = f"{lab.name}-0"
        script = lab.common / "urgent.sbatch"
        script.write_text("#!/bin/sh\nexec sleep 7200\n")
        urgent = lab.submit(str(script), "--partition=urgent", f"--nodelist={node}", "--exclusive")
        lab.wait_for_start(number, restarts=1)
        require(node not in lab.slurm("squeue", "-h", "-j", number, "-o", "%N"), "the job is where it was")
    with step("the first node of the new start loses its power in the middle of a trial"):
        begun, struck = time.time(), list[str]()

        def trains() -> bool:
            require_running(lab, number)
            for key, _ in training_trials(lab, store):
                if (store.trial(key) / PROGRESS).stat().st_mtime > begun:
                    struck.append(key)
            return bool(struck)

        wait_until(WAIT, "a trial trains", trains)
        lab.hosts("kill", 1)
        lab.slurm("scancel", urgent)
        key = struck[0]
        require(store.result(key) is None, f"trial {key} was over when the node lost power")
        lab.wait_for_start(number, restarts=2)
    return key


def require_running(lab: SlurmLab, number: str) -> None:
    require(lab.job(number)["JobState"] == "RUNNING", f"job {number} does not run:\n{lab.log(number)[-3000:]}")


def rehearse_slurm(lab: Lab) -> None:
    """All acts, in order. Raises Broken."""
    assert isinstance(lab, SlurmLab)
    lab.share_folders()
    (lab.common / "home").mkdir()
    with step("slurmctld and three nodes"):
        lab.start_slurm()
    place = lab.common / "runs"
    watch, over = Watch(open_storage(str(place))), threading.Event()
    threading.Thread(target=watch.follow, args=(over,), daemon=True).start()
    number = lab.submit(lab.write_script("sweep.sbatch", [*SWEEP, *TRIALS], place.name))
    store = open_storage(str(place))
    key = lose_nodes(lab, store, number)
    with step("requeued: the sweep goes on, and the job is done"):
        lab.wait_for_end(number)
        resumed = (store.result(key) or {"training": {}})["training"].get("resumed_at")
        require(resumed, f"trial {key} went on from step {resumed}, not from a checkpoint")
    with step("every trial once, and as MLflow shows it"):
        (sweep,) = manifest.find_ready_sweeps("tofu_tiny", store)
        judge.check_trials(store, sweep, watch, 9)
        judge.check_report(store, sweep.label, None)
        judge.check_mlflow(f"sqlite:///{place}/mlflow.db", store, sweep)
        require(not (rest := litter(store)), f"left in the storage: {rest}")
        over.set()
    lab.hosts("start", 1)
    with step("no node runs Ray or has its folder any more"):
        wait_until(180, "Ray's processes end", lambda: not judge.ray_processes(lab))
        listed = [["ip", "netns", "pids", f"{lab.name}-{host}"] for host in range(COUNT)]
        pids = [subprocess.run(one, capture_output=True, text=True).stdout.split()[-1] for one in listed]
        left = [folder for pid in pids for folder in Path("/proc", pid, "root", "tmp").glob("ray-*")]
        require(not left, f"left on the nodes: {left}")


def make_lab(shared: Path) -> Lab:
    lab = SlurmLab(shared, tools=TOOLS, seen=(ROOT,))
    lab.seen += (lab.common,)
    lab.first = f"tini -s -- slurmd -D -f {lab.configuration}"
    return lab


if __name__ == "__main__":
    sys.exit(rehearse.main(make_lab, rehearse_slurm))
