"""JVMs that start quickly, for the tests start hundreds of drivers: a quick compiler, and Spark's classes in a file.

The file holds the classes as the JVM keeps them in memory. It is made once a clone, by one small run of the job, and every
JVM that ``spark-submit`` starts takes it (``SPARK_SUBMIT_OPTS``), those of the tests' own sessions, too. A JVM that cannot
use it (another Java, another class path) goes on without: nothing but time depends on it. A start of the job takes 10
processor seconds in place of 19.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from hashlib import blake2b
from pathlib import Path

from tagstream.streaming.source.connector import PROJECT
from tests.support import events as ev
from tests.support.process import Process, session_members, wait_for

JARS = PROJECT / ".jars"
VARIABLE = "SPARK_SUBMIT_OPTS"
# Hadoop starts a `chmod` for each file that Spark makes: a fork costs a third of what the default way costs.
_FORKS = "-Djdk.lang.Process.launchMechanism=VFORK"
QUICK = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {_FORKS}"
_DEADLINE_S = 300.0
_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def use_class_archive() -> None:
    """Make the file where it is missing, and let this process and those that it starts use it."""
    if VARIABLE in os.environ:
        return
    made = JARS / f"classes-{_digest()}.jsa"
    JARS.mkdir(exist_ok=True)
    with open(JARS / "classes.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of the test processes side by side one makes it
        if not made.exists():
            _make(made)
    archive = f" -XX:SharedArchiveFile={made} {_QUIET}" if made.exists() else ""
    os.environ[VARIABLE] = QUICK + archive


def _digest() -> str:
    """Of the Java and of Spark's jars: the file is of use to exactly these."""
    import pyspark

    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    jars = Path(pyspark.__file__).parent / "jars"
    names = sorted(f"{jar} {jar.stat().st_size}" for jar in jars.iterdir())
    return blake2b("\n".join([java, *names]).encode(), digest_size=8).hexdigest()


def _make(made: Path) -> None:
    """By a run of the job over a few records, whose JVM writes its classes down when it ends."""
    print(f"making {made.name}, once for this clone: Spark's JVMs start quickly with it", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tagstream-classes-") as name:
        folder = Path(name)
        part = folder / made.name
        ev.write_files(ev.generate(200, ev.Mix(keys=50), seed=1), folder / "in", 100)
        schema = folder / "event.avsc"
        schema.write_text(json.dumps(ev.AVRO_SCHEMA))
        conf = {
            **ev.properties(),
            "hoodie.streamer.source.dfs.root": str(folder / "in"),
            "hoodie.streamer.schemaprovider.source.schema.file": str(schema),
            "index.local.dir": str(folder / "local"),
            "spark.driver.memory": "1g",
            "spark.local.dir": str(folder / "spark"),
        }
        command = [
            sys.executable,
            str(PROJECT / "run_stream.py"),
            "--source-class",
            "JsonDFSSource",
            "--source-limit",
            "1",
        ]
        command += ["--target-base-path", str(folder / "table"), "--target-table", "t", "--table-type", "MERGE_ON_READ"]
        command += ["--checkpoint-dir", str(folder / "checkpoint")]
        command += [word for key, value in conf.items() for word in ("--hoodie-conf", f"{key}={value}")]
        env = {**os.environ, VARIABLE: f"{QUICK} -XX:ArchiveClassesAtExit={part} -Xlog:cds=off -Xlog:cds+dynamic=off"}
        with Process(command, folder / "log", cwd=folder, env=env) as process:
            code = process.wait(_DEADLINE_S)
            # The JVM writes the file when its driver has gone.
            wait_for(lambda: not session_members(process.pid), _DEADLINE_S, "the file of classes")
            if code == 0 and part.exists():
                os.replace(_beside(part, made), made)
            else:
                print(
                    f"{made.name} was not made, JVMs start slowly: {code}\n{process.output()[-2000:]}", file=sys.stderr
                )


def _beside(part: Path, made: Path) -> Path:
    """The file in the folder of its place, for it may lie on another disk."""
    beside = made.with_suffix(".part")
    beside.write_bytes(part.read_bytes())
    return beside
