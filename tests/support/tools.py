"""Programs of Debian packages that tests need: where they are, and how to get them when they are not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

PACKAGES = {"promtool": "prometheus", "chromium": "chromium"}
TIMEOUT_S = 60.0
_OPTION = "--without-missing-tools"
_leave_out = [False]
_NOT_RUN = "is not installed, and this test needs it"


def add_option(parser: pytest.Parser) -> None:
    """``--without-missing-tools``: a test whose program is not installed is not run, and listed at the end."""
    parser.addoption(_OPTION, action="store_true", help="leave tests out whose programs are missing, and list them")


def configure(config: pytest.Config) -> None:
    """Take the option."""
    _leave_out[:] = [config.getoption(_OPTION)]


def not_run(reporter: pytest.TerminalReporter) -> list[str]:
    """The tests that were left out, each with the program that it needs."""
    skipped = [
        r for r in reporter.stats.get("skipped", []) if isinstance(r.longrepr, tuple) and _NOT_RUN in r.longrepr[2]
    ]
    return sorted(f"{r.longrepr[2].removeprefix('Skipped: ').partition(' ')[0]}: {r.nodeid}" for r in skipped)


def missing() -> list[str]:
    """The programs that are not there."""
    return [name for name in PACKAGES if shutil.which(name) is None]


def install_command() -> str:
    """What installs all of them on Debian, as root."""
    return f"apt-get update && apt-get install -y --no-install-recommends {' '.join(PACKAGES.values())}"


def main() -> int:
    """Install what is missing where that may be done (Debian, as root); else say in one line what is missing."""
    if missing() and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {', '.join(missing())}: {install_command()}", flush=True)
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(["sh", "-c", install_command()], env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"that failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}", flush=True)
    if missing():
        print(
            f"not installed: {', '.join(missing())}. Tests that need them are not run, and listed at the end; as root: "
            f"{install_command()}",
            flush=True,
        )
    return 0


def tool(name: str) -> str:
    """The path of a program. AssertionError with the command that installs it, or the test is left out where that was
    asked for."""
    path = shutil.which(name)
    if path is None and _leave_out[0]:
        pytest.skip(f"{name} {_NOT_RUN}")
    assert path is not None, f"{name} {_NOT_RUN}: {install_command()} (as root)"
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


if __name__ == "__main__":
    sys.exit(main())
