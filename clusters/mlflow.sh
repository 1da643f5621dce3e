#!/usr/bin/env bash
# Starts MLflow's server on the head, on its loopback address alone; does nothing where it runs already
# (after a change of the backend, end it first).
#   MLFLOW_BACKEND  sqlite (a file beside the log), postgresql (a server on this machine, installed where there is none),
#                   or the address of a database: postgresql://USER@HOST/DATABASE, its password in ~/.pgpass
#   MLFLOW_PLACE    where the file, the artifacts and the log are; ~/mlflow
#   MLFLOW_PORT     5000
set -euo pipefail
place=${MLFLOW_PLACE:-$HOME/mlflow} port=${MLFLOW_PORT:-5000} backend=${MLFLOW_BACKEND:-sqlite}
PATH=$(cd "$(dirname "$0")/.." && pwd)/.venv/bin:$PATH
mkdir -p "$place"

answers() { curl -sf -o /dev/null "http://127.0.0.1:$port/health"; }
if answers; then exit 0; fi

case $backend in
  sqlite) backend=sqlite:///$place/mlflow.db ;;
  postgresql)  # logged in through the socket as this user: no password, and nothing that listens to others
    command -v createdb > /dev/null || sudo DEBIAN_FRONTEND=noninteractive apt-get -qq -y install postgresql
    sudo systemctl start postgresql
    timeout 60 bash -c 'until pg_isready -q; do sleep 1; done'
    sudo -u postgres createuser --createdb "$(id -un)" 2> /dev/null || true
    psql -lqt | cut -d '|' -f 1 | grep -qw mlflow || createdb mlflow
    backend=postgresql:///mlflow ;;
  *://*) ;;
  *) echo "MLFLOW_BACKEND: '$backend' is none of sqlite, postgresql and the address of a database" >&2; exit 2 ;;
esac

cd "$place"
# Without its job runner, which is eight more processes of 0.2 GB that nothing here uses.
MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false setsid nohup python -m mlflow server --host 127.0.0.1 --port "$port" --workers 1 \
  --backend-store-uri "$backend" --artifacts-destination "$place/artifacts" > "$place/server.log" 2>&1 < /dev/null &
for _ in $(seq 360); do
  if answers; then exit 0; fi
  kill -0 $! 2> /dev/null || break
  sleep 0.5
done
echo "MLflow did not start; the end of $place/server.log:" >&2
tail -n 20 "$place/server.log" >&2
exit 1
