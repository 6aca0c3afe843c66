"""A standalone Spark master: asked for a connection, since Spark itself tries for a minute and then says something else."""

from __future__ import annotations

import socket

from tagstream.streaming.errors import EnvironmentProblemError

CONNECT_S = 5.0
_SCHEME = "spark://"


def check_master(master: str | None) -> None:
    """EnvironmentProblemError when none of the hosts of a ``spark://`` master takes a connection; others are not asked."""
    if master is None or not master.startswith(_SCHEME):
        return
    failures = []
    for place in master.removeprefix(_SCHEME).split(","):
        host, _, port = place.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S):
                return
        except (OSError, ValueError) as e:
            failures.append(f"{place} ({e})")
    raise EnvironmentProblemError(
        f"the Spark master {master} does not answer: {', '.join(failures)}; check that it runs, its address and port "
        "(--spark-master, or spark-submit's --master), and the network"
    )
