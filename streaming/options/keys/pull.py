"""Keys of the pull-type indexes: Hudi's ``hoodie.bloom.index.*``, ``hoodie.simple.index.*``, ``hoodie.bucket.index.*``."""

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
