"""A standalone Spark master: asked for a connection, since Spark itself tries for a minute and then says something else."""

from __future__ import annotations

import re
import socket

from tagstream.streaming.errors import EnvironmentProblemError
from tagstream.table.errors import ConfigError

CONNECT_S = 5.0
_SCHEME = "spark://"
_FORM = re.compile(r"local$|local\[|local-cluster\[|spark://.|yarn$|k8s://.")


def check_master(master: str | None) -> None:
    """EnvironmentProblemError when none of the hosts of a ``spark://`` master takes a connection; others are not asked.

    ConfigError for what is no master at all.
    """
    if master is None:
        return
    if not _FORM.match(master):
        raise ConfigError(
            f"--spark-master {master} is no Spark master; it is local[N,retries], spark://HOST:PORT, yarn or k8s://URL"
        )
    if not master.startswith(_SCHEME):
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
