"""Keys of the index: Hudi's ``hoodie.index.type``, Flink's ``index.*``, and the keys of each pull-type index.

The pull-type indexes have Hudi's ``hoodie.bloom.index.*``, ``hoodie.simple.index.*`` and
``hoodie.bucket.index.*``. The HBASE index has ``hoodie.index.hbase.*``, and keys of the Thrift server by which
this writer reaches HBase.
"""

from __future__ import annotations

from tagstream.index.registry import FACTS
from tagstream.table.config import ConfigKey, Kind, Status
from tagstream.table.keys.bucket_hash import RELEASES

_INDEX = "Index"

INDEX_KEYS = (
    ConfigKey(
        "hoodie.index.type",
        Kind.CHOICE,
        "Which index finds a record's place (docs/guide/indexes.md). `FLINK_STATE` is Flink's name for STATE, "
        "`GLOBAL_RECORD_LEVEL_INDEX` that of Hudi 1.1 and later for RECORD_INDEX.",
        default="STATE",
        section=_INDEX,
        values={
            "STATE": "STATE",
            "FLINK_STATE": "STATE",
            **{name: name for name in FACTS},
            "GLOBAL_RECORD_LEVEL_INDEX": "RECORD_INDEX",
        },
        aliases=("index.type",),
    ),
    ConfigKey(
        "hoodie.index.class",
        Kind.STRING,
        "The same by the class of Hudi's index; goes before the type.",
        default_note="by hoodie.index.type",
        section=_INDEX,
    ),
    ConfigKey(
        "index.bootstrap.enabled",
        Kind.BOOL,
        "Load the index from a table that has rows the index does not cover. Flink's default is false; an empty index "
        "over a full table doubles its keys, so here it is true. It is loaded when a new checkpoint meets a table with "
        "rows; with false such a table stops the job by name.",
        default=True,
        section=_INDEX,
    ),
    ConfigKey(
        "index.bootstrap.corrupt.files",
        Kind.CHOICE,
        "What loading the index does with a file that cannot be read, or that a commit names and is not there: `fail` ends "
        "the job and names it; `skip` leaves its slice out, and lists and counts it. Keys of a skipped slice stay "
        "unknown: a record with one is written as a new row beside the old one. Files of no bytes are always passed over.",
        default="fail",
        section=_INDEX,
        values={"FAIL": "fail", "SKIP": "skip"},
    ),
    ConfigKey(
        "index.global.enabled",
        Kind.BOOL,
        "The record key alone identifies a row, in the whole table: a record with "
        "another partition moves. When false, partition and key identify it together.",
        default=True,
        section=_INDEX,
    ),
    ConfigKey(
        "index.state.ttl",
        Kind.FLOAT,
        "Days after which a key that got no record is forgotten; 0 keeps it for ever. A clustering does not count as "
        "a record; a key that was loaded from the table counts from then on. "
        "A forgotten key that comes again is written as a new row beside the old one.",
        default=0.0,
        minimum=0,
        section=_INDEX,
    ),
    ConfigKey(
        "index.tombstone.ttl",
        Kind.FLOAT,
        "Days after its delete that a deleted key leaves the index, by the clock of the batches; 0 keeps it for ever. Live "
        "keys stay. Until then the index remembers the delete's ordering value, and an event that is older is late; "
        "afterwards such an event inserts the row again. Take more than the longest delay of a source, a replay of a topic "
        "included (docs/operations/operations.md, Sizing).",
        default=0.0,
        minimum=0,
        section=_INDEX,
    ),
    ConfigKey(
        "index.partition.regex",
        Kind.REGEX,
        "Partitions whose keys are loaded (the whole path must match).",
        default=".*",
        section=_INDEX,
    ),
    ConfigKey(
        "index.key.groups",
        Kind.INT,
        "Fixed hash slices of the key space; fixed when the checkpoint is made.",
        default_note="4 x shuffle partitions",
        minimum=1,
        maximum=32_768,
        section=_INDEX,
    ),
    ConfigKey(
        "index.local.dir",
        Kind.PATH,
        "Executor-local folder of the key groups' RocksDB; a cache that may be deleted. What is made there can be read and "
        "written by the job's user only, and is refused when it can be by others.",
        default_note="`<spark.local.dir>/tagstream-<user id>/<table hash>/<checkpoint hash>`",
        section=_INDEX,
    ),
    ConfigKey(
        "tagstream.inserts.to.base.files",
        Kind.CHOICE,
        "Merge-on-read, where new records go. `true`: to base files, for tables that writers with a bloom or simple index "
        "share (these do not see log files). `first`: a new file group begins with a base file, later ones go to its logs; "
        "hudi-rs sees such groups of tables of version 8 and 9, too. `false`: to logs.",
        default="false",
        default_note="`false`; `true` on tables of version 8 and 9 that have a metadata table",
        values={"TRUE": "true", "FALSE": "false", "FIRST": "first"},
        section=_INDEX,
    ),
)


_PULL = "Pull-type indexes"
_SPARK = "the batch's records are kept by Spark in memory and on disk while it is tagged"


def _flag(name: str, default: bool, doc: str) -> ConfigKey:
    return ConfigKey(name, Kind.BOOL, doc, default=default, section=_PULL)


def _count(name: str, default: int, doc: str, minimum: int = 0) -> ConfigKey:
    return ConfigKey(name, Kind.INT, doc, default=default, minimum=minimum, section=_PULL)


def _ignored(name: str, reason: str) -> ConfigKey:
    return ConfigKey(name, Kind.STRING, reason, section=_PULL, status=Status.IGNORED, reason=reason)


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
        section=_PULL,
    ),
    ConfigKey(
        "hoodie.bucket.index.hash.field",
        Kind.LIST,
        "BUCKET: the record key fields that are hashed.",
        default=(),
        default_note="the record key fields",
        section=_PULL,
    ),
    ConfigKey(
        "hoodie.index.bucket.engine",
        Kind.CHOICE,
        "BUCKET: how keys are spread.",
        default="SIMPLE",
        values={"SIMPLE": "SIMPLE"},
        refused_values={"CONSISTENT_HASHING": "only the simple engine is written; buckets that split need clustering"},
        section=_PULL,
    ),
    ConfigKey(
        "tagstream.bucket.index.key.release",
        Kind.CHOICE,
        "BUCKET: whose way of taking record keys apart is followed, that of Hudi 0.x or of 1.x. They differ for keys whose "
        "values hold a comma or a colon; take the release that also writes the table.",
        default="1.x",
        values={name.upper(): name for name in RELEASES},
        section=_PULL,
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
    _hbase(
        "hoodie.index.hbase.table",
        Kind.STRING,
        "The index's table in HBase; it must exist (docs/guide/indexes.md#hbase).",
    ),
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
