"""The options of the index and of the table's metadata table, from the checked entries."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.index.bloom import BloomIndexOptions
from tagstream.index.hbase_options import HbaseOptions
from tagstream.index.registry import (
    INDEX_TYPES,
    STATE,
    IndexOptions,
    is_consistent_class,
    type_of_class,
)
from tagstream.streaming.options.operation_options import check_appends
from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.streaming.record_formats import SourceFormat
from tagstream.table.buckets.hashing_metadata import CONSISTENT_HASHING, SIMPLE_ENGINE
from tagstream.table.buckets.partition_rules import EXPRESSIONS, BucketRules
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, split_kinds
from tagstream.table.option_fields import derived, option, read
from tagstream.table.table_version import TableVersion
from tagstream.table.timeline.operation import APPENDS, OVERWRITES

_MOVES = {
    "GLOBAL_BLOOM": "hoodie.bloom.index.update.partition.path",
    "GLOBAL_SIMPLE": "hoodie.simple.index.update.partition.path",
    "RECORD_INDEX": "hoodie.record.index.update.partition.path",
}
# By the beginning of their names; the bloom filters themselves (filter.*) are written with every index.
_OWNERS = (
    ("hoodie.bloom.index.filter.", (STATE, *INDEX_TYPES)),
    ("hoodie.bloom.index.update.", ("GLOBAL_BLOOM",)),
    ("hoodie.bloom.index.", ("BLOOM", "GLOBAL_BLOOM")),
    ("hoodie.simple.index.update.", ("GLOBAL_SIMPLE",)),
    ("hoodie.simple.index.", ("SIMPLE",)),
    ("hoodie.global.simple.index.", ("GLOBAL_SIMPLE",)),
    ("hoodie.bucket.index.", ("BUCKET",)),
    ("hoodie.index.bucket.", ("BUCKET",)),
    ("tagstream.bucket.index.", ("BUCKET",)),
    ("hoodie.index.hbase.", ("HBASE",)),
    ("hoodie.hbase.index.", ("HBASE",)),
    ("hoodie.record.index.update.", ("RECORD_INDEX",)),
    ("tagstream.hbase.", ("HBASE",)),
)
_ENGINE, _TABLE_TYPE = "hoodie.index.bucket.engine", "hoodie.datasource.write.table.type"
# The options that decide the kind of index, and whether it is possible.
INDEX_CHOICE = (
    "hoodie.index.type", "hoodie.index.class", "hoodie.datasource.write.operation", _ENGINE, _TABLE_TYPE, EXPRESSIONS,
)  # fmt: skip
_STATE_ONLY = (
    "index.bootstrap.corrupt.files",
    "index.state.ttl",
    "index.tombstone.ttl",
    "index.partition.regex",
)


def index_options(r: Resolved) -> IndexOptions:
    """The index and its settings; ConfigError for a setting that contradicts the index."""
    kind = _type(r)
    if kind != STATE:
        is_global = INDEX_TYPES[kind].is_global
        if given(r, "index.global.enabled") and r.flag("index.global.enabled") != is_global:
            raise ConfigError(
                f"{r.said('index.global.enabled')}: {kind} is {'' if is_global else 'not '}a global index; "
                "remove the key, or choose another index"
            )
        if r.flag("--bootstrap-only"):
            raise ConfigError(
                f"--bootstrap-only loads the state index, but {kind} finds its keys in the table: remove the flag"
            )
    overwrite = r.text("hoodie.datasource.write.operation") in OVERWRITES
    if overwrite and (
        kind in (STATE, "RECORD_INDEX", "RECORD_LEVEL_INDEX") or not INDEX_TYPES[kind].is_implicit_with_storage
    ):
        raise ConfigError(
            f"{r.said('hoodie.datasource.write.operation')}: {kind} has its own storage, and would keep the locations of "
            f"overwritten rows; use an index in the table (BUCKET, BLOOM, SIMPLE)"
        )
    engine = bucket_engine(r, kind)
    if engine == CONSISTENT_HASHING:
        _check_consistent(r, overwrite=overwrite)
    else:
        BucketRules.parse(r.opt_text(EXPRESSIONS) or "", 1)
    return read(
        IndexOptions,
        r,
        type=kind,
        bucket_engine=engine,
        update_partition_path=r.flag(_MOVES[kind]) if kind in _MOVES else None,
        bloom=read(BloomIndexOptions, r),
        overwrite=overwrite,
        appends=check_appends(r, kind),
        hbase=read(HbaseOptions, r) if kind == "HBASE" else None,
        rebalanced=(r.opt_text("hoodie.index.class") or "").endswith("RebalancedSparkHoodieHBaseIndex"),
    )


def bucket_engine(r: Resolved, kind: str) -> str:
    """The engine of the bucket index, by name or by Hudi's class; ConfigError where they contradict each other."""
    asked, by_class = r.text(_ENGINE), r.opt_text("hoodie.index.class") or ""
    if kind != "BUCKET" or not by_class:
        return asked
    found = CONSISTENT_HASHING if is_consistent_class(by_class) else SIMPLE_ENGINE
    if given(r, _ENGINE) and asked != found:
        raise ConfigError(f"{r.said('hoodie.index.class')} contradicts {r.said(_ENGINE)}; remove one")
    return found


def _check_consistent(r: Resolved, *, overwrite: bool) -> None:
    """ConfigError for what consistent hashing cannot do."""
    said = r.said(_ENGINE)
    if given(r, _TABLE_TYPE) and r.text(_TABLE_TYPE) == COPY_ON_WRITE:
        raise ConfigError(
            f"{said} and {r.said(_TABLE_TYPE)}: consistent hashing is for merge-on-read tables only, as in Hudi on Spark; "
            f"set {_TABLE_TYPE}=MERGE_ON_READ, or use the simple engine"
        )
    if overwrite:
        raise ConfigError(
            f"{said} and {r.said('hoodie.datasource.write.operation')}: an overwrite would replace the file groups that "
            "the partition's ring names, and later rows in them would not be read; use the simple engine"
        )
    if given(r, EXPRESSIONS):
        raise ConfigError(f"{said} and {r.said(EXPRESSIONS)}: rules by partition are for the simple engine; remove one")


def _type(r: Resolved) -> str:
    by_class = r.opt_text("hoodie.index.class")
    kind = type_of_class(by_class) if by_class else r.text("hoodie.index.type")
    if by_class and given(r, "hoodie.index.type") and r.text("hoodie.index.type") != kind:
        raise ConfigError(f"{r.said('hoodie.index.class')} contradicts {r.said('hoodie.index.type')}; remove one")
    return kind


def relevant(r: Resolved, name: str) -> bool:
    """Whether an option is logged: it is given by the user, or a setting of the used index."""
    owner = next((kinds for prefix, kinds in _OWNERS if name.startswith(prefix)), None)
    return owner is None or given(r, name) or _type(r) in owner


def given(r: Resolved, name: str) -> bool:
    """Whether the user gave the key."""
    return r.origin(name) != "default"


def index_warnings(r: Resolved, source_format: SourceFormat) -> list[str]:
    """Warnings for the user about the chosen index. ``source_format``: the format of the records."""
    warnings: list[str] = []
    if r.text("hoodie.datasource.write.operation") in APPENDS:  # no index is used
        return warnings
    kind = _type(r)
    by_partition = not (r.flag("index.global.enabled") if kind == STATE else INDEX_TYPES[kind].is_global)
    fields = split_kinds(r.texts("hoodie.datasource.write.partitionpath.field"))[0]
    unnamed = [field for field in fields if field not in r.texts("hoodie.datasource.write.recordkey.field")]
    if by_partition and unnamed and source_format.envelopes:
        said = r.said("index.global.enabled" if kind == STATE else "hoodie.index.type")
        warnings.append(
            f"{said}: partition and key identify a row together, but a delete of {source_format.name} has only its key: "
            f"each delete is a bad record, because {', '.join(unnamed)} is not in the record key; use a global index"
        )
    if kind != STATE and not INDEX_TYPES[kind].is_global:
        warnings.append(
            f"{r.said('hoodie.index.type')}: partition and key identify a row together; a record with another partition "
            f"than before is a second row, and the first one is kept"
        )
    if kind != STATE:
        warnings += [
            f"{r.said(name)}: has no effect, only the state index uses it" for name in _STATE_ONLY if given(r, name)
        ]
    if kind in ("GLOBAL_BLOOM", "GLOBAL_SIMPLE"):
        warnings.append(
            f"{r.said('hoodie.index.type')}: each batch looks its keys up in the files of the whole table. The state "
            f"index (hoodie.index.type=STATE, or no such key) stores their locations; it is loaded from the table at its "
            f"first start (docs/guide/indexes.md)"
        )
    if kind == "INMEMORY":
        warnings.append(
            f"{r.said('hoodie.index.type')}: every key of the table is in the driver's memory (about 200 bytes each)"
        )
    days = r.real("index.state.ttl")
    if days > 0:
        warnings.append(
            f"{r.said('index.state.ttl')}: a key without a record for {days:g} days is removed from the index; a later "
            f"record with this key is written as a second row, and a late event can overwrite a newer row"
        )
    days = r.real("index.tombstone.ttl")
    if days > 0:
        warnings.append(
            f"{r.said('index.tombstone.ttl')}: a key that was deleted more than {days:g} days ago is removed from the "
            f"index; a later event that is older than the delete inserts the row again"
        )
    if r.text("index.partition.regex") != ".*":
        warnings.append(
            f"{r.said('index.partition.regex')}: when the index is loaded from a table, the index does not get the keys "
            f"in partitions that do not match; a record with such a key is written as a second row"
        )
    return warnings


RECORD_INDEX, PARTITIONED_RECORD_INDEX = "RECORD_INDEX", "RECORD_LEVEL_INDEX"
RECORD_INDEXES = (RECORD_INDEX, PARTITIONED_RECORD_INDEX)  # the types of index in the metadata table

_PREFIX = "hoodie.metadata."
_BY_VERSION = "true from table version 8 on"
_NO_LOOK_UP = "hoodie.index.type=BUCKET does not look up the keys of a bucket"
_OVERWRITES = "because the keys in the file groups that an overwrite replaces are not known"
_BUCKETS = f"because {_NO_LOOK_UP}, so that it would lack new keys"


@dataclass(frozen=True)
class MetadataOptions:
    """``enable`` and the two kinds of statistics are None if the table's version decides.

    ``partitioned_index``: the wanted record index is the one by partition. ``no_record_index``: why a record index cannot
    be updated, as text after a comma; None if it can. ``keys_by_partition``: partition and key identify a row together, so
    that a record index over all partitions cannot have a second row of a key.
    """

    enable: bool | None = option(
        "hoodie.metadata.enable",
        Kind.BOOL,
        "The table's metadata table, which saves readers the listing of files. True: it is built if "
        "there is none, and updated in every commit. Unset: an existing one is updated, and a new "
        "table of version 8 or 9 gets one. False: an existing one is dropped in Hudi's way.",
        default_note="unset",
    )
    column_stats: bool | None = option(
        "hoodie.metadata.index.column.stats.enable",
        Kind.BOOL,
        "A metadata table built by this job has the least and greatest value of each file's columns.",
        default_note=_BY_VERSION,
    )
    partition_stats: bool | None = option(
        "hoodie.metadata.index.partition.stats.enable",
        Kind.BOOL,
        "A metadata table built by this job has the least and greatest value of each partition's "
        "columns (from version 8 on, with column statistics).",
        default_note=_BY_VERSION,
    )
    bloom_filters: bool = option(
        "hoodie.metadata.index.bloom.filter.enable",
        Kind.BOOL,
        "A metadata table built by this job has the bloom filter of each base file.",
        default=False,
    )
    record_index: bool = derived(
        ConfigKey(
            "hoodie.metadata.global.record.level.index.enable",
            Kind.BOOL,
            "A metadata table built by this job has the location of each record key. It is written from "
            "the decisions of the stream's index, whatever its kind.",
            default=False,
            aliases=("hoodie.metadata.record.index.enable",),
        ),
        ConfigKey(
            "hoodie.metadata.record.level.index.enable",
            Kind.BOOL,
            "A record index with file groups for each partition of the table, as in Hudi 1.1 and later: a "
            "row is identified by partition and key together (from version 8 on; not together with the "
            "global one).",
            default=False,
        ),
        default=False,
    )
    partitioned_index: bool = False
    record_index_groups: int = derived(
        ConfigKey(
            "hoodie.metadata.global.record.level.index.min.filegroup.count",
            Kind.INT,
            "Number of file groups of a record index built by this job. It never changes.",
            default=10,
            minimum=1,
            aliases=("hoodie.metadata.record.index.min.filegroup.count",),
        ),
        ConfigKey(
            "hoodie.metadata.record.level.index.min.filegroup.count",
            Kind.INT,
            "Number of file groups for each partition in a record index by partition. It never changes.",
            default=1,
            minimum=1,
            aliases=("hoodie.metadata.partitioned.record.index.min.filegroup.count",),
        ),
        default=10,
    )
    max_delta_commits: int = option(
        "hoodie.metadata.compact.max.delta.commits",
        Kind.INT,
        "Number of commits after which the metadata table is compacted, between two batches.",
        default=10,
        minimum=1,
    )
    no_record_index: str | None = None
    keys_by_partition: bool = False

    def is_made(self, version: int) -> bool:
        """Whether a new table of this version gets a metadata table."""
        return self.enable if self.enable is not None else TableVersion.of(version).metadata_by_default

    def partitions(self, version: int) -> tuple[str, ...]:
        """The partitions of a new metadata table for a table of this version, including ``files``."""
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
        """The partitions that the user named: an existing metadata table gets those that it lacks."""
        chosen = (
            ("column_stats", self.column_stats is True),
            ("bloom_filters", self.bloom_filters),
            ("record_index", self.record_index),
            ("partition_stats", self.partition_stats is True and self.column_stats is not False),
        )
        return tuple(name for name, wanted in chosen if wanted)


def metadata_options(r: Resolved, index_type: str) -> MetadataOptions:
    """The options as they were given. An index in the metadata table needs the metadata table."""
    enable, needed = r.opt_flag(f"{_PREFIX}enable"), index_type in RECORD_INDEXES
    if needed and enable is False:
        said = r.said(f"{_PREFIX}enable")
        text = f"{said}: hoodie.index.type={index_type} is in the metadata table; remove one of the two"
        r.problems.append(Problem(text, r.entries[f"{_PREFIX}enable"]))
    by_partition = _by_partition(r, index_type)
    form = "record.level" if by_partition else "global.record.level"
    overwrites = r.text("hoodie.datasource.write.operation") in OVERWRITES
    is_global = INDEX_TYPES[index_type].is_global if index_type in INDEX_TYPES else r.flag("index.global.enabled")
    asked = not overwrites and r.flag(f"{_PREFIX}{form}.index.enable")
    if asked:
        _check_record_index(r, f"{_PREFIX}{form}.index.enable", index_type, alike=is_global or by_partition)
    return read(
        MetadataOptions,
        r,
        enable=True if needed else enable,
        record_index=needed or asked,
        partitioned_index=by_partition,
        no_record_index=_OVERWRITES if overwrites else _BUCKETS if index_type == "BUCKET" else None,
        keys_by_partition=not is_global,
        record_index_groups=r.number(f"{_PREFIX}{form}.index.min.filegroup.count"),
    )


def _check_record_index(r: Resolved, name: str, index_type: str, *, alike: bool) -> None:
    """Note a record index that the stream cannot update. ``alike``: it identifies rows as the stream's index does."""
    if index_type == "BUCKET":
        text = (
            f"{r.said(name)}: {_NO_LOOK_UP}, so the record index would lack new keys; remove it, or use another index"
        )
    elif not alike:
        which = "index.global.enabled=false" if index_type not in INDEX_TYPES else f"hoodie.index.type={index_type}"
        text = (
            f"{r.said(name)}: with {which} a key can have a row in each partition, but this record index has one location "
            f"per key; set {_PREFIX}record.level.index.enable (table version 8 or 9), or use a global index"
        )
    else:
        return
    r.problems.append(Problem(text, r.entries.get(name)))


def _by_partition(r: Resolved, index_type: str) -> bool:
    """Whether a record index is one by partition. A metadata table has one record index: both forms together are a
    problem."""
    asked = {name: r.flag(f"{_PREFIX}{name}.index.enable") for name in ("global.record.level", "record.level")}
    by_partition = index_type == PARTITIONED_RECORD_INDEX or (index_type != RECORD_INDEX and asked["record.level"])
    other = f"{_PREFIX}{'global.record.level' if by_partition else 'record.level'}.index.enable"
    if r.flag(other):
        meant = index_type if index_type in RECORD_INDEXES else f"{_PREFIX}record.level.index.enable"
        text = f"{r.said(other)}: a metadata table has one record index, and {meant} is for the other form; remove one"
        r.problems.append(Problem(text, r.entries[other]))
    return by_partition
