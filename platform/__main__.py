"""`python -m platform` prints what the standard library's does: its file runs as the main program."""

import os
import runpy

if __name__ == "__main__":
    runpy.run_path(os.path.join(os.path.dirname(os.__file__), "platform.py"), run_name="__main__")
