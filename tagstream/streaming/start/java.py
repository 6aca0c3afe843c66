"""Java, which Spark runs on: looked for as Spark's own launcher does, and asked for its version."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tagstream.spark_release import oldest_java
from tagstream.streaming.errors import UnfitMachineError

OLDEST = oldest_java()
_SECONDS = 60
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ADVICE = "install Java 17 (openjdk-17-jre-headless), and put it on the PATH or name its folder with JAVA_HOME"


def check_java(env: Mapping[str, str]) -> None:
    """UnfitMachineError unless JAVA_HOME, or where that is not set the PATH, has a Java that Spark can use."""
    home = env.get("JAVA_HOME")
    if home:
        program = shutil.which("java", path=str(Path(home, "bin")))
        if program is None:
            raise UnfitMachineError(f"Spark needs Java {OLDEST}, and JAVA_HOME={home} holds no bin/java; {_ADVICE}")
    else:
        program = shutil.which("java", path=env.get("PATH"))
        if program is None:
            raise UnfitMachineError(
                f"Spark needs Java {OLDEST}: JAVA_HOME is not set and there is no java on the PATH; {_ADVICE}"
            )
    version, said = _ask(program, env)
    if version is None or version < OLDEST:
        raise UnfitMachineError(f"Spark needs Java {OLDEST} or newer, and {program} is {said}; {_ADVICE}")


def _ask(program: str, env: Mapping[str, str]) -> tuple[int | None, str]:
    """The number of the release, and what the program said of itself."""
    try:
        done = subprocess.run(
            [program, "-version"], env=dict(env), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return None, f"no program that runs ({e})"
    said = (done.stderr + done.stdout).strip()
    found = _VERSION.search(said)
    if done.returncode or found is None:
        return None, f"no Java that runs (exit code {done.returncode}: {said.splitlines()[0] if said else 'no word'})"
    return int(found.group(1)), f"Java {found.group(1)}"
