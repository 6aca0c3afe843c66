"""Options of the HBASE index: Hudi's keys, the address of the Thrift server, the form of row keys.

Defaults are those of Hudi's ``HoodieHBaseIndexConfig``; ``docs/guide/indexes.md#hbase`` lists the keys. Row keys are the
record keys, plain or rebalanced. This module does not need happybase.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import ConfigError, InvalidKeyError
from tagstream.table.keys.bucket_hash import string_hash_codes

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


# `HConstants.MAX_ROW_LENGTH`: HBase keeps the length of a row key in two bytes with a sign.
MAX_ROW_BYTES = 32_767


def plain_row_keys(keys: pa.Array) -> pa.Array:
    """The record keys themselves, as bytes (UTF-8). Raises InvalidKeyError for one that HBase cannot take."""
    return _checked(keys.cast(pa.binary()))


def rebalanced_row_keys(keys: pa.Array, buckets: int) -> pa.Array:
    """Record keys behind their bucket's number, which spreads keys in order over regions.

    ``abs(hashCode) % buckets`` with zeros in front, as wide as the greatest number: Hudi's
    ``RebalancedSparkHoodieHBaseIndex``. Java's abs of the smallest int is that int, so its remainder is negative or 0.
    """
    width = len(str(buckets - 1))
    hashes = np.abs(string_hash_codes(keys))  # in 32 bits, so NumPy keeps the smallest one too
    numbers, which = np.unique(np.fmod(hashes.astype(np.int64), buckets), return_inverse=True)
    # The sign counts into the width, as in Java's format.
    prefixes = pa.array([f"{number:0{width}d}" for number in numbers.tolist()], pa.string())
    rows = pc.binary_join_element_wise(prefixes.take(pa.array(which)), keys.cast(pa.string()), "")
    return _checked(rows.cast(pa.binary()))


def _checked(rows: pa.Array) -> pa.Array:
    if len(rows) and rows.null_count:
        raise InvalidKeyError("a record without a record key came to the HBASE index: it cannot be placed")
    if len(rows):
        sizes = pc.min_max(pc.binary_length(rows)).as_py()
        if sizes["min"] < 1 or sizes["max"] > MAX_ROW_BYTES:
            raise InvalidKeyError(
                f"HBase takes row keys of 1 to {MAX_ROW_BYTES} bytes; this batch has record keys that make {sizes['min']} "
                f"to {sizes['max']}: clean the keys at the source, or use another index"
            )
    return rows
