#!/usr/bin/env bash
# Shows MLflow on the head at a socket in a folder of this user's alone; does nothing where it runs already
# (after a change of the backend, end it first). Sweeps write into the database themselves.
#   MLFLOW_TRACKING_URI  the database: sqlite:///FILE, postgresql:///mlflow (on this machine, installed where there is
#                        none), or postgresql://USER@HOST/DATABASE, its password in ~/.pgpass
#   MLFLOW_PLACE         where the socket, the artifacts and the log are; ~/mlflow
set -euo pipefail
place=${MLFLOW_PLACE:-$HOME/mlflow} backend=$MLFLOW_TRACKING_URI
PATH=$(cd "$(dirname "$0")/.." && pwd)/.venv/bin:$PATH
mkdir -p "$place" && chmod 700 "$place"

answers() { curl -sf -m 5 -o /dev/null --unix-socket "$place/socket" http://127.0.0.1/health; }
if answers; then exit 0; fi

if [ "$backend" = postgresql:///mlflow ]; then  # logged in through the socket as this user: no password, no port
  command -v createdb > /dev/null || sudo DEBIAN_FRONTEND=noninteractive apt-get -qq -y install postgresql
  sudo systemctl start postgresql
  timeout 60 bash -c 'until pg_isready -q; do sleep 1; done'
  sudo -u postgres createuser --createdb "$(id -un)" 2> /dev/null || true
  psql -lqt | cut -d '|' -f 1 | grep -qw mlflow || createdb mlflow
fi

cd "$place"
# Without its job runner, which is eight more processes of 0.2 GB that nothing here uses.
MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false setsid nohup python -m mlflow server --uvicorn-opts "--uds $place/socket" --workers 1 \
  --backend-store-uri "$backend" --artifacts-destination "$place/artifacts" > "$place/server.log" 2>&1 < /dev/null &
for _ in $(seq 360); do
  if answers; then exit 0; fi
  kill -0 $! 2> /dev/null || break
  sleep 0.5
done
kill -- -$! 2> /dev/null || true
echo "MLflow did not start; the end of $place/server.log:" >&2
tail -n 20 "$place/server.log" >&2
exit 1
