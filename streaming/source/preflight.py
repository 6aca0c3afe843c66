"""The source looked at before Spark starts, which takes seconds and reports such things late and at length."""

from __future__ import annotations

import os
import socket

from tagstream.streaming.errors import SourceError
from tagstream.streaming.options.options import Options

CONNECT_S = 5.0


def check_source(options: Options) -> None:
    """SourceError when the folder does not exist or no bootstrap server takes a connection."""
    if options.source_class == "kafka":
        _check_brokers(options.kafka_options["kafka.bootstrap.servers"])
        return
    root = (options.dfs_root or "").removeprefix("file://").removeprefix("file:")
    if "://" not in root and not os.path.isdir(root):
        raise SourceError(f"source folder {root} does not exist; correct hoodie.streamer.source.dfs.root")


def _check_brokers(servers: str) -> None:
    failures = []
    for server in (s.strip() for s in servers.split(",") if s.strip()):
        host, _, port = server.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S):
                return
        except (OSError, ValueError) as e:
            failures.append(f"{server} ({e})")
    raise SourceError(
        f"no Kafka broker answers: {', '.join(failures)}; check bootstrap.servers, that the broker runs, and the network"
    )
