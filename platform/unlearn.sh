#!/bin/sh
# The command `unlearn`, from any folder: `make setup` links it into .venv/bin (docs/decisions/0001).
root=$(dirname "$(dirname "$(readlink -f "$0")")")
exec "$root/.venv/bin/python" -P -c \
  'import sys; sys.path.insert(0, sys.argv.pop(1)); from platform.unlearn import main; main()' "$root" "$@"
