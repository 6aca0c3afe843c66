"""What the user wants of the table's metadata table."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.index.family.registry import FACTS
from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.table.table_version import TableVersion

RECORD_INDEX, PARTITIONED_RECORD_INDEX = "RECORD_INDEX", "RECORD_LEVEL_INDEX"
RECORD_INDEXES = (RECORD_INDEX, PARTITIONED_RECORD_INDEX)  # the types of index that lie in the metadata table

_PREFIX = "hoodie.metadata."
_NO_LOOK_UP = "hoodie.index.type=BUCKET does not look up which keys a bucket has"
_OVERWRITES = "since nobody tells it which keys go with the file groups that an overwrite replaces"
_BUCKETS = f"since {_NO_LOOK_UP}, so that it would lack new ones"


@dataclass(frozen=True)
class MetadataOptions:
    """``enable`` and the two kinds of statistics are None where the user left the choice to the table's version.

    ``partitioned_index``: the record index that was asked for is the one by partition. ``no_record_index``: why none can be
    kept in step, in words that follow a comma; None where one can. ``keys_by_partition``: partition and key identify a row
    together, so that a record index over all partitions has no place for a second row of a key.
    """

    enable: bool | None = None
    column_stats: bool | None = None
    partition_stats: bool | None = None
    bloom_filters: bool = False
    record_index: bool = False
    partitioned_index: bool = False
    record_index_groups: int = 10
    max_delta_commits: int = 10
    no_record_index: str | None = None
    keys_by_partition: bool = False

    def is_made(self, version: int) -> bool:
        """Whether a new table of this version gets a metadata table."""
        return self.enable if self.enable is not None else TableVersion.of(version).metadata_by_default

    def partitions(self, version: int) -> tuple[str, ...]:
        """The partitions of a metadata table that is made for a table of this version, ``files`` among them."""
        by_version = TableVersion.of(version).metadata_by_default
        column_stats = by_version if self.column_stats is None else self.column_stats
        partition_stats = column_stats and by_version and self.partition_stats is not False
        chosen = (
            ("files", True),
            ("column_stats", column_stats),
            ("bloom_filters", self.bloom_filters),
            ("record_index", self.record_index),
            ("partition_stats", partition_stats),
        )
        return tuple(name for name, wanted in chosen if wanted)

    def asked_for(self) -> tuple[str, ...]:
        """The partitions that were asked for by name: those that a metadata table which is there lacks are made."""
        chosen = (
            ("column_stats", self.column_stats is True),
            ("bloom_filters", self.bloom_filters),
            ("record_index", self.record_index),
            ("partition_stats", self.partition_stats is True and self.column_stats is not False),
        )
        return tuple(name for name, wanted in chosen if wanted)


def metadata_options(r: Resolved, index_type: str) -> MetadataOptions:
    """The options as they were given. An index that is looked up in the metadata table cannot be without it."""
    enable, needed = r.opt_flag(f"{_PREFIX}enable"), index_type in RECORD_INDEXES
    if needed and enable is False:
        said = r.said(f"{_PREFIX}enable")
        text = f"{said}: hoodie.index.type={index_type} lies in the metadata table; remove one of the two"
        r.problems.append(Problem(text, r.entries[f"{_PREFIX}enable"]))
    by_partition = _by_partition(r, index_type)
    form = "record.level" if by_partition else "global.record.level"
    overwrites = r.text("hoodie.datasource.write.operation") == "INSERT_OVERWRITE"
    is_global = FACTS[index_type].is_global if index_type in FACTS else r.flag("index.global.enabled")
    asked = not overwrites and r.flag(f"{_PREFIX}{form}.index.enable")
    if asked:
        _check_record_index(r, f"{_PREFIX}{form}.index.enable", index_type, alike=is_global or by_partition)
    return MetadataOptions(
        enable=True if needed else enable,
        column_stats=r.opt_flag(f"{_PREFIX}index.column.stats.enable"),
        partition_stats=r.opt_flag(f"{_PREFIX}index.partition.stats.enable"),
        bloom_filters=r.flag(f"{_PREFIX}index.bloom.filter.enable"),
        record_index=needed or asked,
        partitioned_index=by_partition,
        no_record_index=_OVERWRITES if overwrites else _BUCKETS if index_type == "BUCKET" else None,
        keys_by_partition=not is_global,
        record_index_groups=r.number(f"{_PREFIX}{form}.index.min.filegroup.count"),
        max_delta_commits=r.number(f"{_PREFIX}compact.max.delta.commits"),
    )


def _check_record_index(r: Resolved, name: str, index_type: str, *, alike: bool) -> None:
    """Note a record index that the stream cannot keep in step. ``alike``: it identifies rows as the stream's index does."""
    if index_type == "BUCKET":
        text = (
            f"{r.said(name)}: {_NO_LOOK_UP}, so the record index would lack new ones; remove it, or take another index"
        )
    elif not alike:
        which = "index.global.enabled=false" if index_type not in FACTS else f"hoodie.index.type={index_type}"
        text = (
            f"{r.said(name)}: with {which} a key can have a row in each partition, and this record index has one place for "
            f"a key; give {_PREFIX}record.level.index.enable (table version 8 or 9), or take a global index"
        )
    else:
        return
    r.problems.append(Problem(text, r.entries.get(name)))


def _by_partition(r: Resolved, index_type: str) -> bool:
    """Whether a record index is one by partition. A metadata table has one record index: asked for both forms it is a
    problem."""
    asked = {name: r.flag(f"{_PREFIX}{name}.index.enable") for name in ("global.record.level", "record.level")}
    by_partition = index_type == PARTITIONED_RECORD_INDEX or (index_type != RECORD_INDEX and asked["record.level"])
    other = f"{_PREFIX}{'global.record.level' if by_partition else 'record.level'}.index.enable"
    if r.flag(other):
        meant = index_type if index_type in RECORD_INDEXES else f"{_PREFIX}record.level.index.enable"
        text = (
            f"{r.said(other)}: a metadata table has one record index, and {meant} asks for the other form; remove one"
        )
        r.problems.append(Problem(text, r.entries[other]))
    return by_partition
