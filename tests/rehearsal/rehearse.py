"""`make rehearsal`: a cluster of three pretend hosts, from `ray up` to `ray down`, as a person uses it.

The commands are those of README.md, "On a cluster", and of docs/cluster.md, every one but what only AWS can answer.
Exit 0: all held; 1: the first thing that did not hold; 2: it cannot be done here, and what is missing.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import requests

from platform.state import manifest
from tests.faults.sweep import Watch
from tests.rehearsal import judge
from tests.rehearsal.lab import COUNT, ROOT, Broken, Lab, missing, require, wait_until
from tests.support.other_user import find_breaches
from trainables.storage import atomic_files
from trainables.storage.file_names import PROGRESS, RESULT
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import open_storage

SETTINGS = (
    *"benchmark.data=/srv/shared/data/tofu models=/srv/shared/models/tofu_tiny benchmark.split=forget05".split(),
    *"benchmark.limit=8 rectifier.gamma=0.8 training.batch_size=8 resources.checkpoint_every=2".split(),
)
TRIALS = ("--only", "method=ga,gd,npo", "--set", "training.max_steps=16")
RANKS = ("--only", "method=npo", "--set", "training.max_steps=8", "--set", "rectifier.tau=none")
RANKS += ("--set", "resources.ranks=2", "--set", "resources.zero_stage=2")
YES = "-y"
"""What a person answers when Ray asks; it asks nobody without a terminal."""
STRIKE = 4
"""The step of a trial at which its host loses power: two checkpoints are written by then."""
DARK = 20.0
"""Seconds without power."""


SWEEP = ["tofu_tiny", *(part for pair in SETTINGS for part in ("--set", pair))]
"""What stands for the pages' tofu_llama."""
ON_HEAD = "cd unlearning && python -m platform.sweep tofu_llama"


@contextlib.contextmanager
def step(title: str) -> Iterator[None]:
    """Say what is done and how long it took."""
    print(f"{title} ...", flush=True)
    begun = time.monotonic()
    yield
    print(f"  {time.monotonic() - begun:.0f} s", flush=True)


def bring_up(lab: Lab) -> None:
    with step(f"check {lab.file}"):
        lab.run(*lab.words_of("python -m platform.cluster check cluster.yaml"))
    with step("ray up"):
        lab.run(*lab.words_of("ray up cluster.yaml"), YES, seconds=600)
    with step("all hosts have joined"):
        wait_for_hosts(lab)
    with step("the dashboard, from the laptop"), lab.forward("ray dashboard cluster.yaml", 8265) as address:
        token = Path("~/.ray/auth_token").expanduser().read_text()
        known = {"Authorization": f"Bearer {token.strip()}"}
        output = requests.get(f"{address}/api/version", headers=known, timeout=30).json()
        require("ray_version" in output, f"the dashboard answers {output}")


def wait_for_hosts(lab: Lab) -> None:
    wait_until(400, "all hosts are in the cluster", lambda: f"{COUNT} local.cluster.node" in lab.on_head("ray status"))


def ask_as_another_user(lab: Lab, host: int = 0) -> list[str]:
    """Return what another user of a host can read or call at its ports while a sweep runs."""
    within = ["ip", "netns", "exec", f"{lab.name}-{host}"]
    listed = subprocess.run([*within, "ss", "-Hltn"], capture_output=True, text=True, check=True).stdout
    addresses = [
        line.split()[3].replace("*", "127.0.0.1").replace("0.0.0.0", "127.0.0.1") for line in listed.splitlines()
    ]
    command = [*within, sys.executable, str(ROOT / "tests/support/other_user.py"), str(lab.folder / "none"), *addresses]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return find_breaches(told)


def lose_laptop_and_host(lab: Lab, store: Storage) -> None:
    """Nine trials: the laptop goes away after the first result, then a host loses its power, then all come back."""
    typed = lab.words_of("python -m platform.sweep tofu_llama --cluster cluster.yaml", [*SWEEP, *TRIALS])
    with step("a sweep from the laptop, until its first result; another user asks all ports; the laptop goes away"):
        laptop = lab.begin(*typed)
        wait_until(900, "a first result", lambda: require(laptop.is_running, "the command ended") or results(store))
        require(not (found := ask_as_another_user(lab)), f"another user of the head: {found}")
        laptop.kill()
    with step(f"a host in the middle of a trial loses its power for {DARK:.0f} s"):
        struck: list[tuple[str, int]] = []
        wait_until(600, "a worker trains", lambda: struck.extend(training_trials(lab, store)) or struck)
        key, host = struck[0]
        lab.hosts("kill", host)
        require(store.result(key) is None, f"trial {key} was over when its host lost power")
        time.sleep(DARK)
        lab.hosts("start", host)
        print(f"  it was {lab.name}-{host}, in trial {key}", flush=True)
    with step("the laptop finds the sweep again and sees its end"):
        output = lab.run(*typed, seconds=900)
        require("attached to" in output, "the laptop started a second sweep")
        require("its process or node went away; it goes on" in output, "nobody was told of the lost host")
    resumed = (store.result(key) or {"training": {}})["training"].get("resumed_at")
    require(resumed, f"trial {key} went on from step {resumed} after its host was lost, not from a checkpoint")
    print(f"  trial {key} went on from step {resumed}", flush=True)


def results(store: Storage) -> list[Path]:
    return list(store.root.glob(f"trials/*/{RESULT}"))


def training_trials(lab: Lab, store: Storage) -> Iterator[tuple[str, int]]:
    """Trials in the middle of training on hosts other than the head, with their hosts."""
    for path in store.root.glob(f"trials/*/{PROGRESS}"):
        progress: dict[str, Any] = atomic_files.read_json(path) or {}
        host = int(progress.get("host", f"{lab.name}-0").removeprefix(f"{lab.name}-"))
        if host and progress["phase"] == "training" and STRIKE <= progress["step"] < progress["steps"] - STRIKE:
            yield path.parent.name, host


def run_two_ranks(lab: Lab) -> None:
    """Two trials of two ranks, which one host cannot hold, from a shell on the head."""
    with step("every host is back"):
        wait_for_hosts(lab)
    with step("two trials of two ranks, from a shell on the head"):
        typed = shlex.join(lab.words_of(ON_HEAD, [*SWEEP, *RANKS])).replace("'&&'", "&&")
        shell = lab.begin(*lab.words_of("ray attach cluster.yaml"), keys=f"{typed}; exit\n")
        output = shell.end(900)
    require("2 trials, 2 done" in output or "report: " in output, "the head's shell says nothing of the trials' end")
    with step("Ray says where their ranks ran"):
        check_ranks(lab)
    require("across nodes" in output, "nobody was told that ranks run across nodes")


def check_ranks(lab: Lab) -> None:
    """Require that the ranks of a trial ran on two hosts, as Ray remembers beyond the end."""
    listed = lab.on_head("ray list actors --filter class_name=RayTrainWorker --detail --format json")
    places: dict[str, list[str]] = {}
    found = re.search(r"^\[.*\]\s*$", listed, re.MULTILINE)  # among what `ray exec` says of itself
    require(found, f"Ray lists no ranks:\n{listed}")
    for rank in json.loads(found[0] if found else "[]"):
        places.setdefault(rank["placement_group_id"], []).append(rank["node_id"])
    require(len(places) >= 2, f"Ray knows of {len(places)} trials of several ranks")
    require(all(len(set(nodes)) == len(nodes) == 2 for nodes in places.values()), f"ranks met on one host: {places}")


def compare_views(lab: Lab, store: Storage, watch: Watch) -> None:
    """Compare all views of what was done."""
    watch.note_results()
    sweeps = sorted(manifest.find_ready_sweeps("tofu_tiny", store), key=lambda found: len(found.trials))
    require([len(found.trials) for found in sweeps] == [2, 9], f"the storage has other sweeps: {sweeps}")
    places = [None, ROOT / "runs" / "reports"]
    with lab.forward("ssh -NL 5000:/home/ubuntu/mlflow/socket ubuntu@$(ray get-head-ip cluster.yaml)", 5000) as address:
        for found, place in zip(sweeps, places, strict=True):
            judge.check_trials(store, found, watch, len(found.trials))
            judge.check_report(store, found.label, place and place / found.label)
            judge.check_mlflow(address, store, found)


def rehearse(lab: Lab) -> None:
    """All acts, in order, on hosts that are up. Raises Broken."""
    lab.share_folders()
    place = lab.common / "runs"
    watch = Watch(open_storage(str(place)))
    over = threading.Event()
    threading.Thread(target=watch.follow, args=(over,), daemon=True).start()
    bring_up(lab)
    store = open_storage(str(place))
    lose_laptop_and_host(lab, store)
    with step("status from the laptop"):
        typed = lab.words_of("ray exec cluster.yaml 'cd unlearning && python -m platform.status tofu_llama'")
        output = lab.run(*typed[:-1], typed[-1].replace("tofu_llama", "tofu_tiny"))
        require("done 9 " in output and "of 9" in output, "status does not say that all nine are done")
    run_two_ranks(lab)
    compare_views(lab, store, watch)
    over.set()
    with step("ray down"):
        lab.run(*lab.words_of("ray down cluster.yaml"), YES)
    with step("no host runs Ray any more"):
        wait_until(180, "Ray's processes end", lambda: not judge.ray_processes(lab))


def main(make_lab: Callable[[Path], Lab] = Lab, rehearse: Callable[[Lab], None] = rehearse) -> int:
    """Say what is needed, and rehearse; return the exit status."""
    parser = argparse.ArgumentParser(description="A rehearsal of a cluster on pretend hosts: docs/cluster.md.")
    default = os.environ.get("UNLEARN_SHARED", str(ROOT.parent / "shared"))
    parser.add_argument("--shared", type=Path, default=Path(default), help="folder with data/tofu and models/tofu_tiny")
    given = parser.parse_args()
    lab, begun = make_lab(given.shared.resolve()), time.monotonic()
    print(f"this needs Linux, root, {lab.needs}, and data and models in {lab.shared}", flush=True)
    lacking = missing(lab.tools) or ("" if (lab.shared / "data/tofu").is_dir() else f"missing: {lab.shared}/data/tofu")
    if lacking:
        print(f"NOT DONE: no rehearsal here, {lacking}", file=sys.stderr)
        return 2
    try:
        lab.hosts("up", COUNT if not lab.first else 0)
        with reports_restored(), lab.clean_up():
            rehearse(lab)
        require(not (rest := judge.find_leftovers(lab)), f"left behind: {rest}")
    except Broken as found:
        print(f"broken: {found}", flush=True)
        return 1
    print(f"all held, {(time.monotonic() - begun) / 60:.1f} min", flush=True)
    return 0


@contextlib.contextmanager
def reports_restored() -> Iterator[None]:
    """Remove the reports that the laptop fetches into this checkout's runs/."""
    reports = ROOT / "runs" / "reports"
    before = set(reports.glob("*"))
    try:
        yield
    finally:
        for fetched in set(reports.glob("*")) - before:
            shutil.rmtree(fetched)


if __name__ == "__main__":
    sys.exit(main())
