"""The commands of the writers' programs. Each takes an order as its argument."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench.peers import home
from bench.writers.case import DELTA_RS, HUDI_FLINK, HUDI_SPARK, PAIMON, TAGSTREAM, Writer

FLINK_PEERS = {HUDI_FLINK: home.HUDI_ON_FLINK, PAIMON: home.PAIMON}
_OPENED = (
    "java.lang java.lang.reflect java.net java.io java.nio java.text java.time java.util java.util.concurrent "
    "java.util.concurrent.atomic java.util.concurrent.locks sun.nio.ch"
).split()
_JAVA = [
    "java", "-Xms1g", "-Xmx4g", "-Duser.timezone=UTC", "-Djdk.attach.allowAttachSelf=true",
    # Hudi's spillable map asks JOL for the sizes of objects, which tries for seconds to attach to its own process.
    "-Djol.skipHotspotSAAttach=true",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
]  # fmt: skip


def command(writer: Writer, order: Path) -> list[str]:
    """The command of the writer's program."""
    if writer.name == TAGSTREAM:
        return [sys.executable, "-m", "bench.writers.tagstream", str(order)]
    if writer.name == HUDI_SPARK:
        return [str(home.python()), str(Path(home.__file__).with_name("spark_program.py")), str(order)]
    if writer.name == DELTA_RS:
        return [str(home.delta_python()), str(Path(home.__file__).with_name("delta_program.py")), str(order)]
    return java(FLINK_PEERS[writer.name], order)


def java(peer: home.FlinkPeer, order: Path, program: str | None = None) -> list[str]:
    """The command of a peer's program on Flink: the writing one, or `program`."""
    class_path = os.pathsep.join(map(str, home.flink_class_path(peer)))
    return [*_JAVA, "-cp", class_path, program or peer.main, str(order)]


def environment(writer: Writer) -> dict[str, str]:
    """This process's environment without variables that would mislead another Spark."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    if writer.name == TAGSTREAM:
        env["PYTHONPATH"] = str(home.PROJECT)
    return env
