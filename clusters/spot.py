"""On a spot machine of AWS: tells Ray as soon as EC2 announces that it takes the machine away, two minutes ahead.

Ray then starts nothing more on it, and its trials write a checkpoint (docs/decisions/0008-clusters.md). Ray itself asks
no cloud for such notices. Started beside Ray on every worker; on a machine that is not spot it waits for nothing.

    METADATA  where EC2 answers; http://169.254.169.254
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
import urllib.request

SECONDS, DEADLINE = 5.0, 110
"""Between two looks, and from the notice until the machine is gone."""
SERVER = os.environ.get("METADATA", "http://169.254.169.254") + "/latest"


def noticed() -> bool:
    """Whether EC2 has announced it; nothing is there before (404), and nobody answers elsewhere."""
    try:
        return bool(_asked("meta-data/spot/instance-action", "GET", {"X-aws-ec2-metadata-token": _token()}))
    except (OSError, http.client.HTTPException):  # URLError and its kin; an answer that is cut off
        return False


def _token() -> str:
    return _asked("api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})


def _asked(path: str, method: str, headers: dict[str, str]) -> str:
    request = urllib.request.Request(f"{SERVER}/{path}", method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=2.0) as answer:
        return answer.read().decode()


def drain(deadline: int) -> None:
    """Tell Ray that this node will be gone in so many seconds."""
    import ray

    ray.init(address="auto", log_to_driver=False)
    context = ray.get_runtime_context()
    node = ["--address", context.gcs_address, "--node-id", context.get_node_id()]
    ray.shutdown()
    reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "EC2 takes this machine back"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", *node, *reason]
    subprocess.run([*command, "--deadline-remaining-seconds", str(deadline)], check=True)


def announce(seconds: float = DEADLINE) -> bool:
    """Tell Ray, again and again where it does not listen, until the machine is gone; whether it was told."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            drain(max(1, int(left)))
        except Exception as error:  # Ray raises what its own processes say, and this machine has nobody else to ask
            print(f"not announced yet: {error}", flush=True)
            time.sleep(SECONDS)
        else:
            return True
    return False


if __name__ == "__main__":
    while not noticed():
        time.sleep(SECONDS)
    announce()
