#!/usr/bin/env bash
# Runs a command on the first node of a Slurm job, with one Ray over all its nodes; its exit status is the job's.
#   slurm.sh COMMAND [ARGUMENT ...]
# Ray's servers answer nobody without the job's token, which only this user can read. A job that is queued again need not
# wait for the lock that a killed sweep left on another node: the sweep watches such a lock for a minute and takes it over.
set -euo pipefail
unset RAY_ADDRESS RAY_AUTH_TOKEN  # sbatch takes the login shell's along

# On one node the sweep starts a Ray of its own, which listens on loopback alone and leaves the node's other jobs alone.
[ "${SLURM_JOB_NUM_NODES:?start it with sbatch}" -gt 1 ] || exec "$@"

# The folder of Ray's sockets and logs, at the same place on every node; the path of a socket may have 107 characters.
export RAY_TMPDIR=/tmp/ray-$SLURM_JOB_ID
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$RAY_TMPDIR/token
# No metrics are served: they ask for no token. At port -1 the head's two servers of them do not start.
export RAY_enable_metrics_collection=0 AUTOSCALER_METRIC_PORT=-1 DASHBOARD_METRIC_PORT=-1 RAY_USAGE_STATS_ENABLED=0
# Nodes start Python from a shared folder, each at its own pace: they wait for each other for ten minutes.
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=600 RAY_py_gcs_connect_timeout_s=600 RAY_raylet_start_wait_time_s=120
export RAY_agent_register_timeout_ms=600000 RAY_NUM_REDIS_GET_RETRIES=300  # of 2 s each

# The first node's address is what the last one calls it by: on the first itself its name may mean loopback.
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
ip=$(srun --nodes=1 --ntasks=1 --nodelist="${nodes[-1]}" getent ahostsv4 "${nodes[0]}" | awk 'NR == 1 {print $1}')

# Each job has ports of its own.
port=$((20000 + SLURM_JOB_ID % 1000 * 10))
ports=(--ray-client-server-port=$((port + 1)) --dashboard-port=$((port + 2)) --dashboard-agent-listen-port=$((port + 3))
  --min-worker-port=0 --max-worker-port=0)

start() { # the command and Ray, from their beginning to their end
  # where Slurm does not track processes by cgroup, a job that was killed leaves Ray running, which this one would refuse
  "${all_nodes[@]}" ray stop --force > /dev/null
  python -c 'import secrets; print(secrets.token_hex(32))' |
    "${all_nodes[@]}" bash -c 'rm -rf "$RAY_TMPDIR" && mkdir -m 700 "$RAY_TMPDIR" && cat > "$RAY_AUTH_TOKEN_PATH"'
  "${all_nodes[@]}" --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 --wait=10 \
    ray symmetric-run --address "$ip:$port" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="${SLURM_GPUS_ON_NODE:-0}" "${ports[@]}" \
    -- env RAY_ADDRESS="$ip:$port" bash -c "$record" record "$@" || true
}

# The command's own status is written down, 143 until it has one: then it was told to stop, and is not started again.
# symmetric-run ends with 0 where Ray does not start. A node whose Python is slow for the first time gives up after 15 s
# (https://github.com/ray-project/ray/issues/65983): it gets two more tries.
all_nodes=(srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES")
record='echo 143 > "$RAY_TMPDIR/status"
  status=0; "$@" || status=$?; echo "$status" > "$RAY_TMPDIR/status"; exit "$status"'
for _ in 1 2 3; do
  start "$@"
  [ ! -e "$RAY_TMPDIR/status" ] || break
  echo "slurm.sh: Ray did not start: see above, and $RAY_TMPDIR on ${nodes[*]}" >&2
done
status=$(cat "$RAY_TMPDIR/status" || echo 1)
"${all_nodes[@]}" rm -rf "$RAY_TMPDIR" || true
exit "$status"
