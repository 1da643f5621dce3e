"""What one trial does on a worker, from objectives to evaluation. It imports neither platform nor analysis."""

import sys
from importlib.util import find_spec

if find_spec("typer") is None:
    sys.exit(f"error: {sys.executable} lacks the packages; type: make setup; then take .venv/bin/python")
