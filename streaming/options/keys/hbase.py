"""Keys of the HBASE index: Hudi's ``hoodie.index.hbase.*``, and the Thrift server that this writer reaches HBase by."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind, Status

_SECTION = "HBASE index"
_ZOOKEEPER = "Hudi's own writers find HBase by it; this one goes to the Thrift server (tagstream.hbase.thrift.host)"


def _key(name: str, kind: Kind, doc: str, default: str | int | float | bool | None = None, **more: float) -> ConfigKey:
    return ConfigKey(name, kind, doc, default=default, section=_SECTION, **more)  # type: ignore[arg-type]


def _ignored(name: str) -> ConfigKey:
    return ConfigKey(name, Kind.STRING, _ZOOKEEPER, section=_SECTION, status=Status.IGNORED, reason=_ZOOKEEPER)


HBASE_KEYS = (
    _key("hoodie.index.hbase.table", Kind.STRING, "The index's table in HBase; it must exist (docs/hbase.md)."),
    _key("tagstream.hbase.thrift.host", Kind.STRING, "Host of HBase's Thrift server.", "localhost"),
    _key("tagstream.hbase.thrift.port", Kind.INT, "Its port.", 9090, minimum=1, maximum=65535),
    _key("tagstream.hbase.thrift.timeout.seconds", Kind.FLOAT, "Seconds that one request may take.", 60.0, minimum=0.1),
    _key("tagstream.hbase.thrift.retries", Kind.INT, "How often a request that failed is tried again.", 5, minimum=0),
    _key("hoodie.index.hbase.get.batch.size", Kind.INT, "Keys of one get.", 100, minimum=1),
    _key("hoodie.index.hbase.put.batch.size", Kind.INT, "Rows of one put.", 100, minimum=1),
    _key(
        "hoodie.index.hbase.put.batch.size.autocompute", Kind.BOOL, "As many rows as a task may put in a second.", False
    ),
    _key("hoodie.index.hbase.qps.fraction", Kind.FLOAT, "Share of HBase's capacity that the job may use.", 0.5),
    _key("hoodie.index.hbase.max.qps.per.region.server", Kind.INT, "Capacity of a region server, puts a second.", 1000),
    _key(
        "hoodie.index.hbase.rollback.sync",
        Kind.BOOL,
        "Take back what a failed write has put; it counts for nothing.",
        False,
    ),
    _key("hoodie.index.hbase.security.authentication", Kind.STRING, "Only `simple` can be used.", "simple"),
    _key("hoodie.index.hbase.bucket.number", Kind.INT, "Prefixes of the rebalanced class (`hoodie.index.class`).", 8),
    _key(
        "hoodie.hbase.index.update.partition.path",
        Kind.BOOL,
        "A record that comes with another partition moves there; when false it is written to the partition its key is in.",
        False,
    ),
    *(_ignored(f"hoodie.index.hbase.{name}") for name in ("zkquorum", "zkport", "zknode.path", "zkpath.qps_root")),
)
