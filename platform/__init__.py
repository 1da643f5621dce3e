"""The driver: `python -m platform.sweep`, run from the root of a checkout.

The folder shares its name with a module of the standard library that torch, Ray, pandas and pip import. So this package
first becomes that module: the standard library's own file runs in this very namespace (it replaces this docstring too),
and `platform.system()` and all else work as everywhere; `platform.sweep` and the like are submodules beside it.
Why, and what follows from it: docs/decisions/0001-the-name-platform.md.
"""

import os
import signal
import sys
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any

_path = os.path.join(os.path.dirname(os.__file__), "platform.py")
exec(SourceFileLoader("platform", _path).get_code("platform") or "", globals())  # None only of extension modules

if sys.argv[:1] == ["-m"] and sys.orig_argv[2:3] and sys.orig_argv[2].startswith("platform."):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while a command imports: then `run_for_exit_status` takes Ctrl-C

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Stand for the standard module's names, which a type checker cannot see through exec."""
