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

from tagstream.table.config import Kind
from tagstream.table.errors import ConfigError, InvalidKeyError
from tagstream.table.keys.bucket_hash import string_hash_codes
from tagstream.table.option_fields import key_name, option

SIMPLE = "simple"
# Hudi lets a task do ten batches of gets per second (`SparkHoodieHBaseIndex.locationTagFunction`).
_GET_BATCHES_A_SECOND = 10


@dataclass(frozen=True)
class HbaseOptions:
    """Options by Hudi's names. The ``thrift_*`` options are this project's: Python reaches HBase through its Thrift server.

    ``thrift_timeout_seconds`` is that of one request, ``thrift_retries`` how often a failed one is tried again. Hudi's own
    writers find HBase by its keys of ZooKeeper; they are not used here.
    """

    table: str = option(
        "hoodie.index.hbase.table",
        Kind.STRING,
        "The index's table in HBase; it must exist (docs/guide/indexes.md#hbase).",
        unread="",
    )
    thrift_host: str = option(
        "tagstream.hbase.thrift.host", Kind.STRING, "Host of HBase's Thrift server.", default="localhost"
    )
    thrift_port: int = option(
        "tagstream.hbase.thrift.port",
        Kind.INT,
        "Port of HBase's Thrift server.",
        default=9090,
        minimum=1,
        maximum=65535,
    )
    thrift_timeout_seconds: float = option(
        "tagstream.hbase.thrift.timeout.seconds",
        Kind.FLOAT,
        "Timeout of one request, in seconds.",
        default=60.0,
        minimum=0.1,
    )
    thrift_retries: int = option(
        "tagstream.hbase.thrift.retries",
        Kind.INT,
        "Number of retries of a failed request.",
        minimum=0,
        default=5,
    )
    get_batch_size: int = option(
        "hoodie.index.hbase.get.batch.size", Kind.INT, "Number of keys in one get.", default=100, minimum=1
    )
    put_batch_size: int = option(
        "hoodie.index.hbase.put.batch.size", Kind.INT, "Number of rows in one put.", default=100, minimum=1
    )
    put_batch_size_autocompute: bool = option(
        "hoodie.index.hbase.put.batch.size.autocompute",
        Kind.BOOL,
        "Set the number of rows in one put to the number that a task may put per second.",
        default=False,
    )
    qps_fraction: float = option(
        "hoodie.index.hbase.qps.fraction", Kind.FLOAT, "Share of HBase's capacity that the job may use.", default=0.5
    )
    max_qps_per_region_server: int = option(
        "hoodie.index.hbase.max.qps.per.region.server",
        Kind.INT,
        "Capacity of a region server, in puts per second.",
        default=1000,
    )
    rollback_sync: bool = option(
        "hoodie.index.hbase.rollback.sync",
        Kind.BOOL,
        "Undo the puts of a failed write; without it they stay, but do not count.",
        default=False,
    )
    security_authentication: str = option(
        "hoodie.index.hbase.security.authentication", Kind.STRING, "Only `simple` is supported.", default=SIMPLE
    )
    bucket_number: int = option(
        "hoodie.index.hbase.bucket.number",
        Kind.INT,
        "Number of row key prefixes of the rebalanced class (`hoodie.index.class`).",
        default=8,
    )
    update_partition_path: bool = option(
        "hoodie.hbase.index.update.partition.path",
        Kind.BOOL,
        "A record with another partition moves the row there; when false it is written to the "
        "partition of the existing row.",
        default=False,
    )

    def __post_init__(self) -> None:
        """ConfigError for a value that cannot be used."""
        if not self.table:
            raise ConfigError("the HBASE index needs hoodie.index.hbase.table, the name of its table in HBase")
        for name in ("get_batch_size", "put_batch_size", "max_qps_per_region_server", "bucket_number"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{key_name(HbaseOptions, name)} is {getattr(self, name)}; it must be 1 at least")
        if not 0 < self.qps_fraction <= 1:
            raise ConfigError(
                f"{key_name(HbaseOptions, 'qps_fraction')} is {self.qps_fraction}; it must be above 0 and 1 at most"
            )
        if not 0 < self.thrift_port < 65536:
            raise ConfigError(f"tagstream.hbase.thrift.port is {self.thrift_port}; it must be between 1 and 65535")
        if self.thrift_retries < 0 or self.thrift_timeout_seconds <= 0:
            raise ConfigError(
                "tagstream.hbase.thrift.retries must not be negative, and its timeout must be above 0 seconds"
            )
        if self.security_authentication != SIMPLE:
            raise ConfigError(
                f"hoodie.index.hbase.security.authentication is {self.security_authentication!r}; only {SIMPLE!r} can be "
                "used, because the Thrift client has no Kerberos: use another index, or a Thrift server behind a tunnel"
            )

    @property
    def gets_a_second(self) -> float:
        """Keys that one task may look up per second."""
        return float(self.get_batch_size * _GET_BATCHES_A_SECOND)

    def puts_a_second(self, region_servers: int, tasks: int) -> int:
        """Mutations that one of ``tasks`` parallel tasks may do per second, at least 1.

        As in ``HBasePutBatchSizeCalculator.getBatchSize`` of Hudi's ``SparkHoodieHBaseIndex``.
        """
        total = int(self.qps_fraction * region_servers * self.max_qps_per_region_server)
        return max(1, total // max(1, tasks))

    def puts_a_batch(self, region_servers: int, tasks: int) -> int:
        """Mutations in one request; with autocompute the number that a task may do per second."""
        return self.puts_a_second(region_servers, tasks) if self.put_batch_size_autocompute else self.put_batch_size

    def wait_seconds(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row: half a second, doubling up to ten."""
        return min(10.0, 0.5 * math.pow(2, failures - 1))

    @property
    def address(self) -> str:
        """host:port of the Thrift server."""
        return f"{self.thrift_host}:{self.thrift_port}"


# `HConstants.MAX_ROW_LENGTH`: HBase stores the length of a row key in two bytes with a sign.
MAX_ROW_BYTES = 32_767


def plain_row_keys(keys: pa.Array) -> pa.Array:
    """The record keys themselves, as bytes (UTF-8). InvalidKeyError for a key that HBase cannot store."""
    return _checked(keys.cast(pa.binary()))


def rebalanced_row_keys(keys: pa.Array, buckets: int) -> pa.Array:
    """Record keys after their bucket's number, which spreads ascending keys over regions.

    The number is ``abs(hashCode) % buckets`` with leading zeros, as wide as the greatest number, as in Hudi's
    ``RebalancedSparkHoodieHBaseIndex``. Java's abs of the smallest int is that int, so its remainder is negative or 0.
    InvalidKeyError as in `plain_row_keys`.
    """
    width = len(str(buckets - 1))
    hashes = np.abs(string_hash_codes(keys))  # in 32 bits, so that NumPy also keeps the smallest int
    numbers, which = np.unique(np.fmod(hashes.astype(np.int64), buckets), return_inverse=True)
    # The sign counts as part of the width, as in Java's format.
    prefixes = pa.array([f"{number:0{width}d}" for number in numbers.tolist()], pa.string())
    rows = pc.binary_join_element_wise(prefixes.take(pa.array(which)), keys.cast(pa.string()), "")
    return _checked(rows.cast(pa.binary()))


def _checked(rows: pa.Array) -> pa.Array:
    if len(rows) and rows.null_count:
        raise InvalidKeyError(
            "a record without a record key cannot be stored in the HBASE index; set a key at the source"
        )
    if len(rows):
        sizes = pc.min_max(pc.binary_length(rows)).as_py()
        if sizes["min"] < 1 or sizes["max"] > MAX_ROW_BYTES:
            raise InvalidKeyError(
                f"HBase takes row keys of 1 to {MAX_ROW_BYTES} bytes; the record keys of this batch give {sizes['min']} "
                f"to {sizes['max']}: correct the keys at the source, or use another index"
            )
    return rows
