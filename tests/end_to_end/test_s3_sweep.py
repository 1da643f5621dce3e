"""One real sweep whose storage is a bucket: run, looked at and gone on with from machines that have nothing of it."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_sweep_end_to_end import SETTINGS
from tests.support import small_sweep
from tests.support.environment import RunModule, type_settings
from trainables.storage.file_names import RESULT

pytestmark = pytest.mark.slow
URI = "s3://bucket/team/runs"
TRIALS = 3  # GA without and with GRU, and TV at one strength


@dataclass
class Bucket:
    """The sweep in the bucket; `run` types a command on a machine of the given name, new names being new machines."""

    client: Any
    arguments: list[str]
    typed: Callable[..., subprocess.CompletedProcess[str]]
    place: Path

    def run(self, machine: str, module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        return self.typed(module, *arguments, "--storage", URI, UNLEARN_CACHE=str(self.place / machine))

    def start(self, machine: str, *more: str) -> list[str]:
        done = self.run(machine, "platform.sweep", *self.arguments, *more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    def objects(self) -> dict[str, Any]:
        """When each object was written, by its name below the storage."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="team/runs/")
        found = (item for page in pages for item in page.get("Contents", []))
        names = {item["Key"].removeprefix("team/runs/"): item["LastModified"] for item in found}
        return {name: when for name, when in names.items() if name and not name.endswith("/")}  # no marks of folders

    def results(self) -> dict[str, Any]:
        found = self.objects()
        return {name: when for name, when in found.items() if name.startswith("trials/") and name.endswith(RESULT)}


@pytest.fixture(scope="module")
def bucket(
    trial_inputs: Any, run_module: RunModule, object_store: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Bucket:
    import boto3

    place = tmp_path_factory.mktemp("machines")
    settings = [*small_sweep.write_inputs(trial_inputs, place), *SETTINGS]
    flags = type_settings([*settings, "resources.checkpoint_every=2", "task_vector.strength=4"])
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=object_store["AWS_ENDPOINT_URL"], **keys)

    def typed(module: str, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        return run_module(module, *arguments, OMP_NUM_THREADS="1", **object_store, **env)

    found = Bucket(client, ["tofu_tiny", *flags, "--only", "method=ga,tv"], typed, place)
    lines = found.start("first")
    assert lines[1].startswith(f"storage {URI}, ")
    return found


def test_the_bucket_holds_the_sweep(bucket: Bucket) -> None:
    found = bucket.objects()
    assert len(bucket.results()) == TRIALS
    assert {name.split("/")[0] for name in found} == {"trials", "sweeps", "shared", "reports", "stress"}
    trials = {name.split("/", 2)[2] for name in found if name.startswith("trials/")}
    assert {"config.json", "result.json", "steps.parquet", "evaluation.parquet", "weights/.complete"} <= trials
    assert not any("checkpoint" in name or "progress" in name or name.endswith(".lock") for name in found)
    text = "".join(
        bucket.client.get_object(Bucket="bucket", Key=f"team/runs/{name}")["Body"].read().decode()
        for name in found
        if name.endswith((".json", ".html"))
    )
    assert "nobody-knows-it" not in text
    assert "nor-this-one" not in text


def test_a_new_machine_finds_all_done(bucket: Bucket) -> None:
    before = bucket.objects()
    told = json.loads("\n".join(bucket.start("planner", "--dry-run", "--json")))
    assert [trial["done"] for trial in told["trials"]] == [True] * TRIALS
    assert told["storage"] == URI
    assert bucket.objects() == before
    results = bucket.results()
    assert f"{TRIALS} done, 0 to run" in bucket.start("second", "--resume")[0]
    assert bucket.results() == results


def test_results_that_are_lost_or_cannot_be_read_run_again_and_no_others(bucket: Bucket) -> None:
    results = bucket.results()
    lost, spoilt, *_ = sorted(results)
    bucket.client.delete_object(Bucket="bucket", Key=f"team/runs/{lost}")
    bucket.client.put_object(Bucket="bucket", Key=f"team/runs/{spoilt}", Body=b'{"id": "cut sh')
    refused = bucket.run("second", "platform.sweep", *bucket.arguments)
    assert (refused.returncode, "; add --resume" in refused.stderr) == (2, True), refused.stderr
    lines = bucket.start("second", "--resume")
    assert any(f"{TRIALS - 2} done, 2 to run" in line for line in lines)
    assert any(line.startswith("damaged: ") and line.endswith(f"{spoilt}; its trial runs again") for line in lines)
    after = bucket.results()
    assert {name for name in after if after[name] != results[name]} == {lost, spoilt}
    assert after.keys() == results.keys()


def test_views_from_machines_that_have_nothing(bucket: Bucket) -> None:
    told = json.loads(bucket.run("looker", "platform.status", "tofu_tiny", "--json").stdout)
    assert told["counts"] == {"total": TRIALS, "done": TRIALS, "running": 0, "failed": 0, "left": 0}
    assert told["driver"] is None
    done = bucket.run("reader", "analysis.report", "tofu_tiny")
    assert done.returncode == 0, done.stderr
    assert "w/ GRU" in done.stdout
    kept = next(
        name.split("/")[1]
        for name in bucket.objects()
        if name.startswith("trials/") and name.endswith("weights/.complete")
    )
    done = bucket.run("taker", "trainables.export", kept, "--output", bucket.place / "exported")
    assert done.returncode == 0, done.stderr
    assert (bucket.place / "exported" / "model.safetensors").is_file()
