"""The source looked at before Spark starts, which takes seconds and reports such things late and at length."""

from __future__ import annotations

import os
import socket

from tagstream.streaming.errors import SourceError, SourcePlaceError
from tagstream.streaming.options.options import Options

CONNECT_S = 5.0
_ROOT = "hoodie.streamer.source.dfs.root"


def check_source(options: Options) -> None:
    """SourceError when the folder does not exist, is none or can't be read, or when no broker takes a connection."""
    if options.source_class == "kafka":
        _check_brokers(options.kafka_options["kafka.bootstrap.servers"])
        return
    if options.source_class == "frame":
        return
    root = options.dfs_root or ""
    if "://" in root:
        return
    if not os.path.exists(root):
        raise SourceError(f"source folder {root} does not exist; correct {_ROOT}")
    if not os.path.isdir(root):
        raise SourcePlaceError(f"source folder {root} is a file; name the folder that holds it with {_ROOT}")
    if not os.access(root, os.R_OK | os.X_OK):
        raise SourcePlaceError(f"source folder {root} can't be read by user {os.geteuid()}; let it, or correct {_ROOT}")


def _check_brokers(servers: str) -> None:
    failures = []
    for server in (s.strip() for s in servers.split(",") if s.strip()):
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal():
            failures.append(f"{server} (it names no port: write for example {server.strip(':')}:9092)")
            continue
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S):
                return
        except OSError as e:
            failures.append(f"{server} ({e})")
    raise SourceError(
        f"no Kafka broker answers: {', '.join(failures)}; check bootstrap.servers, that the broker runs, and the network"
    )
