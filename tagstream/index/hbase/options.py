"""What the HBASE index can be told: Hudi's keys, and where the Thrift server is.

Defaults are those of Hudi's ``HoodieHBaseIndexConfig``; ``docs/hbase.md`` lists the keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tagstream.table.errors import ConfigError

SIMPLE = "simple"
# Hudi lets a task do ten batches of gets a second (`SparkHoodieHBaseIndex.locationTagFunction`).
_GET_BATCHES_A_SECOND = 10


@dataclass(frozen=True)
class HbaseOptions:
    """Options by Hudi's names. ``thrift_*`` are ours: Python reaches HBase through its Thrift server.

    ``zkquorum``, ``zkport`` and ``zknode_path`` are how Hudi's own writers find HBase; they are not used here.
    ``thrift_timeout_seconds`` is that of one request, ``thrift_retries`` how often a failed one is tried again.
    """

    table: str
    thrift_host: str = "localhost"
    thrift_port: int = 9090
    thrift_timeout_seconds: float = 60.0
    thrift_retries: int = 5
    zkquorum: str | None = None
    zkport: int | None = None
    zknode_path: str | None = None
    get_batch_size: int = 100
    put_batch_size: int = 100
    put_batch_size_autocompute: bool = False
    qps_fraction: float = 0.5
    max_qps_per_region_server: int = 1000
    rollback_sync: bool = False
    security_authentication: str = SIMPLE
    update_partition_path: bool = False
    bucket_number: int = 8

    def __post_init__(self) -> None:
        """Raises ConfigError for a value that cannot be used."""
        if not self.table:
            raise ConfigError("the HBASE index needs hoodie.index.hbase.table, the name of its table in HBase")
        for name in ("get_batch_size", "put_batch_size", "max_qps_per_region_server", "bucket_number"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{_key(name)} is {getattr(self, name)}; it must be 1 at least")
        if not 0 < self.qps_fraction <= 1:
            raise ConfigError(f"{_key('qps_fraction')} is {self.qps_fraction}; it must be above 0 and 1 at most")
        if not 0 < self.thrift_port < 65536:
            raise ConfigError(f"tagstream.hbase.thrift.port is {self.thrift_port}, which is no port")
        if self.thrift_retries < 0 or self.thrift_timeout_seconds <= 0:
            raise ConfigError("tagstream.hbase.thrift.retries must not be negative, and its timeout above 0 seconds")
        if self.security_authentication != SIMPLE:
            raise ConfigError(
                f"hoodie.index.hbase.security.authentication is {self.security_authentication!r}; only {SIMPLE!r} can be "
                "used, as the Thrift client here has no Kerberos: use another index, or a Thrift server behind a tunnel"
            )

    @property
    def gets_a_second(self) -> float:
        """Keys that one task may look up in a second."""
        return float(self.get_batch_size * _GET_BATCHES_A_SECOND)

    def puts_a_second(self, region_servers: int, tasks: int) -> int:
        """Mutations that one of ``tasks`` parallel tasks may do in a second, 1 at least.

        As ``HBasePutBatchSizeCalculator.getBatchSize`` in Hudi's ``SparkHoodieHBaseIndex``.
        """
        total = int(self.qps_fraction * region_servers * self.max_qps_per_region_server)
        return max(1, total // max(1, tasks))

    def puts_a_batch(self, region_servers: int, tasks: int) -> int:
        """Mutations in one request; with autocompute what a task may do in a second."""
        return self.puts_a_second(region_servers, tasks) if self.put_batch_size_autocompute else self.put_batch_size

    def wait_seconds(self, failures: int) -> float:
        """How long to wait after that many failures in a row: half a second, doubling up to ten."""
        return min(10.0, 0.5 * math.pow(2, failures - 1))

    @property
    def address(self) -> str:
        """host:port of the Thrift server."""
        return f"{self.thrift_host}:{self.thrift_port}"


def _key(name: str) -> str:
    keys = {
        "get_batch_size": "get.batch.size",
        "put_batch_size": "put.batch.size",
        "max_qps_per_region_server": "max.qps.per.region.server",
        "bucket_number": "bucket.number",
        "qps_fraction": "qps.fraction",
    }
    return f"hoodie.index.hbase.{keys[name]}"
