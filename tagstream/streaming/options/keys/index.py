"""Keys of the record-key index: Hudi's ``hoodie.index.type`` and Flink's ``index.*``."""

from __future__ import annotations

from tagstream.index.family.registry import FACTS
from tagstream.table.config import ConfigKey, Kind

_INDEX = "Index"

INDEX_KEYS = (
    ConfigKey(
        "hoodie.index.type",
        Kind.CHOICE,
        "Which index finds a record's place (docs/indexes.md). `FLINK_STATE` is Flink's name for STATE, "
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
        "included (docs/operations.md, Sizing).",
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
