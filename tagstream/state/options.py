"""Options of the state index: how it is loaded from a table, what it forgets, where it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tagstream.table.config import Kind
from tagstream.table.option_fields import option

_DAY_MS = 86_400_000


def _days(days: float) -> int:
    return int(days * _DAY_MS)


@dataclass(frozen=True)
class StateIndexOptions:
    """``is_global``: the record key alone identifies a row. ``ttl_ms``, ``tombstone_ttl_ms`` 0: nothing is forgotten.

    ``key_groups`` None: by the number of shuffle partitions. ``local_dir`` None: in Spark's local folder.
    """

    bootstrap_enabled: bool = option(
        "index.bootstrap.enabled",
        Kind.BOOL,
        "Load the index from a table with rows that the index does not cover, when a new checkpoint is "
        "used with such a table. With false the job stops and names the table. Flink's default is "
        "false; but an empty index over a full table duplicates its keys, so the default here is true.",
        default=True,
    )
    corrupt_files: Literal["fail", "skip"] = option(
        "index.bootstrap.corrupt.files",
        Kind.CHOICE,
        "What the load of the index does with a file that cannot be read, or that a commit names and "
        "that does not exist: `fail` ends the job and names the file; `skip` skips its slice, and "
        "lists and counts it. The index does not get the keys of a skipped slice: a record with such a "
        "key is written as a second row. Empty files are always ignored.",
        default="fail",
        values={"FAIL": "fail", "SKIP": "skip"},
    )
    is_global: bool = option(
        "index.global.enabled",
        Kind.BOOL,
        "The record key alone identifies a row in the whole table: a record with another partition "
        "moves the row. When false, a row is identified by partition and key together.",
        default=True,
    )
    ttl_ms: int = option(
        "index.state.ttl",
        Kind.FLOAT,
        "Days without a record after which a key is removed from the index; 0: never. A "
        "clustering does not count as a record. For a key loaded from the table the time starts with "
        "the load. A record with a removed key is written as a second row.",
        default=0.0,
        minimum=0,
        convert=_days,
    )
    tombstone_ttl_ms: int = option(
        "index.tombstone.ttl",
        Kind.FLOAT,
        "Days after its delete until a deleted key is removed from the index, by the clock of the "
        "batches; 0: never. Live keys are kept. While the index has the delete's ordering "
        "value, an older event is late; afterwards such an event inserts the row again. Set more than "
        "the longest delay of a source, including a replay of a topic (docs/operations/operations.md, "
        "Sizing).",
        default=0.0,
        minimum=0,
        convert=_days,
    )
    partition_regex: str = option(
        "index.partition.regex",
        Kind.REGEX,
        "Partitions whose keys are loaded (the whole path must match).",
        default=".*",
    )
    key_groups: int | None = option(
        "index.key.groups",
        Kind.INT,
        "Number of fixed hash ranges of the keys. It is fixed when the checkpoint is made.",
        default_note="4 x shuffle partitions",
        minimum=1,
        maximum=32_768,
    )
    local_dir: str | None = option(
        "index.local.dir",
        Kind.PATH,
        "Folder on each executor for the key groups' RocksDB, a cache that may be deleted, and for `tagstream.task.files`. "
        "Only the job's user can read and write the folders in it. A folder that others can write is refused.",
        default_note="`<spark.local.dir>/tagstream-<user id>/<table hash>/<checkpoint hash>`",
    )
