"""A headless Chromium that reads one page: what it shows once its scripts have run."""

from __future__ import annotations

import html
import shutil
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
"""None where there is none: `apt-get install chromium`."""
FLAGS = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --enable-logging=stderr".split()


def read_page(url: str, profile: Path, *, width: int = 1600, seconds: int = 60) -> tuple[str, str]:
    """Return a page's HTML after so many seconds of its own time, and what its scripts said on the console."""
    size = [f"--window-size={width},1000", f"--virtual-time-budget={1000 * seconds}", f"--user-data-dir={profile}"]
    done = subprocess.run(
        [str(CHROMIUM), *FLAGS, *size, "--dump-dom", url], capture_output=True, text=True, timeout=300, check=True
    )
    said = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return html.unescape(done.stdout), "\n".join(said)
