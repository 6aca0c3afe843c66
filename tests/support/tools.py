"""Programs of Debian packages that tests need: where they are, and how to get them when they are not there."""

from __future__ import annotations

import shutil
import subprocess

PACKAGES = {"promtool": "prometheus", "chromium": "chromium"}
TIMEOUT_S = 60.0


def tool(name: str) -> str:
    """The path of a program; AssertionError with the command that installs it."""
    path = shutil.which(name)
    packages = " ".join(sorted(set(PACKAGES.values())))
    assert path is not None, (
        f"{name} is not installed and this test needs it: "
        f"apt-get update && apt-get install -y --no-install-recommends {packages} (as root)"
    )
    return path


def run_tool(name: str, *arguments: str, stdin: bytes = b"", seconds: float = TIMEOUT_S) -> str:
    """What a program printed, standard error too; AssertionError with it when it fails."""
    done = subprocess.run(
        [tool(name), *arguments],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
    )
    text = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, f"{name} {' '.join(arguments)} ended with {done.returncode}:\n{text}"
    return text
