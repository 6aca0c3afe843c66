"""Keys of the pull-type indexes: Hudi's ``hoodie.bloom.index.*``, ``hoodie.simple.index.*``, ``hoodie.bucket.index.*``;

of the HBASE index ``hoodie.index.hbase.*``, and the Thrift server that this writer reaches HBase by.
"""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind, Status
from tagstream.table.keys.bucket_hash import RELEASES

_SECTION = "Pull-type indexes"
_SPARK = "the batch's records are kept by Spark in memory and on disk while it is tagged"


def _flag(name: str, default: bool, doc: str) -> ConfigKey:
    return ConfigKey(name, Kind.BOOL, doc, default=default, section=_SECTION)


def _count(name: str, default: int, doc: str, minimum: int = 0) -> ConfigKey:
    return ConfigKey(name, Kind.INT, doc, default=default, minimum=minimum, section=_SECTION)


def _ignored(name: str, reason: str) -> ConfigKey:
    return ConfigKey(name, Kind.STRING, reason, section=_SECTION, status=Status.IGNORED, reason=reason)


_MOVES = (
    "a record that comes with another partition moves there; when false it is written to the partition its key is in"
)

PULL_KEYS = (
    _flag("hoodie.bloom.index.prune.by.ranges", True, "BLOOM: leave out files whose key range cannot hold a key."),
    _flag(
        "hoodie.bloom.index.use.treebased.filter",
        True,
        "BLOOM: find the keys within a file's range by bisection of the sorted keys; when false every key is compared.",
    ),
    _flag(
        "hoodie.bloom.index.bucketized.checking",
        True,
        "BLOOM: spread the checks evenly over tasks, a file with very many keys over several; when false files are "
        "checked in the order of their names, each by one task.",
    ),
    _count("hoodie.bloom.index.keys.per.bucket", 10_000_000, "BLOOM: comparisons that one task does at most.", 1),
    _count("hoodie.bloom.index.parallelism", 0, "BLOOM: tasks of a look-up; 0: from the number of comparisons."),
    _flag("hoodie.bloom.index.update.partition.path", True, f"GLOBAL_BLOOM: {_MOVES}."),
    _flag("hoodie.record.index.update.partition.path", False, f"RECORD_INDEX: {_MOVES}."),
    _count("hoodie.simple.index.parallelism", 0, "SIMPLE: tasks of a look-up; 0: as many as cores."),
    _count("hoodie.global.simple.index.parallelism", 100, "GLOBAL_SIMPLE: tasks of a look-up, at most one a file.", 1),
    _flag("hoodie.simple.index.update.partition.path", True, f"GLOBAL_SIMPLE: {_MOVES}."),
    ConfigKey(
        "hoodie.bucket.index.num.buckets",
        Kind.INT,
        "BUCKET: buckets (file groups) of each partition. Fixed when the table is made, and in none of its properties: "
        "give the same always (Flink's default is 4).",
        default=256,
        minimum=1,
        maximum=99_999_999,
        section=_SECTION,
    ),
    ConfigKey(
        "hoodie.bucket.index.hash.field",
        Kind.LIST,
        "BUCKET: the record key fields that are hashed.",
        default=(),
        default_note="the record key fields",
        section=_SECTION,
    ),
    ConfigKey(
        "hoodie.index.bucket.engine",
        Kind.CHOICE,
        "BUCKET: how keys are spread.",
        default="SIMPLE",
        values={"SIMPLE": "SIMPLE"},
        refused_values={"CONSISTENT_HASHING": "only the simple engine is written; buckets that split need clustering"},
        section=_SECTION,
    ),
    ConfigKey(
        "tagstream.bucket.index.key.release",
        Kind.CHOICE,
        "BUCKET: whose way of taking record keys apart is followed, that of Hudi 0.x or of 1.x. They differ for keys whose "
        "values hold a comma or a colon; take the release that also writes the table.",
        default="1.x",
        values={name.upper(): name for name in RELEASES},
        section=_SECTION,
    ),
    *(
        _ignored(name, _SPARK)
        for name in (
            "hoodie.bloom.index.use.caching",
            "hoodie.bloom.index.input.storage.level",
            "hoodie.simple.index.use.caching",
            "hoodie.simple.index.input.storage.level",
        )
    ),
    _ignored("hoodie.global.index.reconcile.parallelism", "moved keys are looked up where they are tagged"),
    _ignored("hoodie.bloom.index.fileid.key.sorting.enable", "keys are always sorted"),
    _flag(
        "hoodie.bloom.index.use.metadata",
        False,
        "BLOOM: key ranges and filters come out of the table's metadata table, where it has them (column statistics, bloom "
        "filters), and no footer is read for them; of a file that it does not know the footer is read.",
    ),
)

_HBASE = "HBASE index"
_ZOOKEEPER = "Hudi's own writers find HBase by it; this one goes to the Thrift server (tagstream.hbase.thrift.host)"


def _hbase(
    name: str, kind: Kind, doc: str, default: str | int | float | bool | None = None, **more: float
) -> ConfigKey:
    return ConfigKey(name, kind, doc, default=default, section=_HBASE, **more)  # type: ignore[arg-type]


def _of_hudis_own(name: str) -> ConfigKey:
    return ConfigKey(name, Kind.STRING, _ZOOKEEPER, section=_HBASE, status=Status.IGNORED, reason=_ZOOKEEPER)


HBASE_KEYS = (
    _hbase("hoodie.index.hbase.table", Kind.STRING, "The index's table in HBase; it must exist (docs/hbase.md)."),
    _hbase("tagstream.hbase.thrift.host", Kind.STRING, "Host of HBase's Thrift server.", "localhost"),
    _hbase("tagstream.hbase.thrift.port", Kind.INT, "Its port.", 9090, minimum=1, maximum=65535),
    _hbase(
        "tagstream.hbase.thrift.timeout.seconds", Kind.FLOAT, "Seconds that one request may take.", 60.0, minimum=0.1
    ),
    _hbase("tagstream.hbase.thrift.retries", Kind.INT, "How often a request that failed is tried again.", 5, minimum=0),
    _hbase("hoodie.index.hbase.get.batch.size", Kind.INT, "Keys of one get.", 100, minimum=1),
    _hbase("hoodie.index.hbase.put.batch.size", Kind.INT, "Rows of one put.", 100, minimum=1),
    _hbase(
        "hoodie.index.hbase.put.batch.size.autocompute", Kind.BOOL, "As many rows as a task may put in a second.", False
    ),
    _hbase("hoodie.index.hbase.qps.fraction", Kind.FLOAT, "Share of HBase's capacity that the job may use.", 0.5),
    _hbase(
        "hoodie.index.hbase.max.qps.per.region.server", Kind.INT, "Capacity of a region server, puts a second.", 1000
    ),
    _hbase(
        "hoodie.index.hbase.rollback.sync",
        Kind.BOOL,
        "Take back what a failed write has put; it counts for nothing.",
        False,
    ),
    _hbase("hoodie.index.hbase.security.authentication", Kind.STRING, "Only `simple` can be used.", "simple"),
    _hbase("hoodie.index.hbase.bucket.number", Kind.INT, "Prefixes of the rebalanced class (`hoodie.index.class`).", 8),
    _hbase(
        "hoodie.hbase.index.update.partition.path",
        Kind.BOOL,
        "A record that comes with another partition moves there; when false it is written to the partition its key is in.",
        False,
    ),
    *(_of_hudis_own(f"hoodie.index.hbase.{name}") for name in ("zkquorum", "zkport", "zknode.path", "zkpath.qps_root")),
)
