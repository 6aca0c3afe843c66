"""The options of the index and of the table's metadata table, out of the checked entries."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.index.bloom import BloomIndexOptions
from tagstream.index.hbase_options import HbaseOptions
from tagstream.index.registry import FACTS, STATE, IndexOptions, type_of_class
from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.streaming.record_formats import SourceFormat
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.table_config import split_kinds
from tagstream.table.table_version import TableVersion

_MOVES = {
    "GLOBAL_BLOOM": "hoodie.bloom.index.update.partition.path",
    "GLOBAL_SIMPLE": "hoodie.simple.index.update.partition.path",
    "RECORD_INDEX": "hoodie.record.index.update.partition.path",
}
# By the beginning of their names; the bloom filters themselves (filter.*) are written with every index.
_OWNERS = (
    ("hoodie.bloom.index.filter.", (STATE, *FACTS)),
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
# What decides which index it is, and whether it can be.
INDEX_CHOICE = ("hoodie.index.type", "hoodie.index.class", "hoodie.datasource.write.operation")
_STATE_ONLY = (
    "index.bootstrap.corrupt.files",
    "index.state.ttl",
    "index.tombstone.ttl",
    "index.partition.regex",
    "index.local.dir",
)


def index_options(r: Resolved) -> IndexOptions:
    """Which index, and its settings; ConfigError for a setting that the chosen index contradicts."""
    kind = _type(r)
    if kind != STATE:
        if given(r, "index.global.enabled") and r.flag("index.global.enabled") != FACTS[kind].is_global:
            raise ConfigError(
                f"{r.said('index.global.enabled')}: {kind} is {'' if FACTS[kind].is_global else 'not '}a global index; "
                "remove the key, or choose another index"
            )
        if r.flag("--bootstrap-only"):
            raise ConfigError(
                f"--bootstrap-only loads the state index; {kind} finds its keys in the table: remove the flag"
            )
    overwrite = r.text("hoodie.datasource.write.operation") == "INSERT_OVERWRITE"
    if overwrite and (
        kind in (STATE, "RECORD_INDEX", "RECORD_LEVEL_INDEX") or not FACTS[kind].is_implicit_with_storage
    ):
        raise ConfigError(
            f"{r.said('hoodie.datasource.write.operation')}: {kind} keeps places of its own, and would go on knowing those "
            "of rows that were overwritten; use an index that lies in the table (BUCKET, BLOOM, SIMPLE)"
        )
    return IndexOptions(
        type=kind,
        update_partition_path=r.flag(_MOVES[kind]) if kind in _MOVES else None,
        bloom=BloomIndexOptions(
            prune_by_ranges=r.flag("hoodie.bloom.index.prune.by.ranges"),
            use_tree=r.flag("hoodie.bloom.index.use.treebased.filter"),
            bucketized=r.flag("hoodie.bloom.index.bucketized.checking"),
            keys_per_bucket=r.number("hoodie.bloom.index.keys.per.bucket"),
            parallelism=r.number("hoodie.bloom.index.parallelism"),
            use_metadata=r.flag("hoodie.bloom.index.use.metadata"),
        ),
        simple_parallelism=r.number("hoodie.simple.index.parallelism"),
        global_simple_parallelism=r.number("hoodie.global.simple.index.parallelism"),
        num_buckets=r.number("hoodie.bucket.index.num.buckets"),
        bucket_fields=r.texts("hoodie.bucket.index.hash.field"),
        bucket_key_release=r.text("tagstream.bucket.index.key.release"),
        overwrite=overwrite,
        hbase=_hbase(r) if kind == "HBASE" else None,
        rebalanced=(r.opt_text("hoodie.index.class") or "").endswith("RebalancedSparkHoodieHBaseIndex"),
    )


def _hbase(r: Resolved) -> HbaseOptions:
    prefix = "hoodie.index.hbase."
    return HbaseOptions(
        table=r.opt_text(prefix + "table") or "",
        thrift_host=r.text("tagstream.hbase.thrift.host"),
        thrift_port=r.number("tagstream.hbase.thrift.port"),
        thrift_timeout_seconds=r.real("tagstream.hbase.thrift.timeout.seconds"),
        thrift_retries=r.number("tagstream.hbase.thrift.retries"),
        get_batch_size=r.number(prefix + "get.batch.size"),
        put_batch_size=r.number(prefix + "put.batch.size"),
        put_batch_size_autocompute=r.flag(prefix + "put.batch.size.autocompute"),
        qps_fraction=r.real(prefix + "qps.fraction"),
        max_qps_per_region_server=r.number(prefix + "max.qps.per.region.server"),
        rollback_sync=r.flag(prefix + "rollback.sync"),
        security_authentication=r.text(prefix + "security.authentication"),
        update_partition_path=r.flag("hoodie.hbase.index.update.partition.path"),
        bucket_number=r.number(prefix + "bucket.number"),
    )


def _type(r: Resolved) -> str:
    by_class = r.opt_text("hoodie.index.class")
    kind = type_of_class(by_class) if by_class else r.text("hoodie.index.type")
    if by_class and given(r, "hoodie.index.type") and r.text("hoodie.index.type") != kind:
        raise ConfigError(f"{r.said('hoodie.index.class')} contradicts {r.said('hoodie.index.type')}; remove one")
    return kind


def relevant(r: Resolved, name: str) -> bool:
    """Whether an option is worth a line in the log: given by the user, or a setting of the index that is used."""
    owner = next((kinds for prefix, kinds in _OWNERS if name.startswith(prefix)), None)
    return owner is None or given(r, name) or _type(r) in owner


def given(r: Resolved, name: str) -> bool:
    """Whether the user wrote the key himself."""
    return r.origin(name) != "default"


def index_warnings(r: Resolved, source_format: SourceFormat) -> list[str]:
    """What the user should know of the choice. ``source_format``: what records are written in."""
    warnings = []
    kind = _type(r)
    by_partition = not (r.flag("index.global.enabled") if kind == STATE else FACTS[kind].is_global)
    fields = split_kinds(r.texts("hoodie.datasource.write.partitionpath.field"))[0]
    unnamed = [field for field in fields if field not in r.texts("hoodie.datasource.write.recordkey.field")]
    if by_partition and unnamed and source_format.envelopes:
        said = r.said("index.global.enabled" if kind == STATE else "hoodie.index.type")
        warnings.append(
            f"{said}: partition and key identify a row together, and a delete of {source_format.name} names its key alone: "
            f"each is a bad record, since {', '.join(unnamed)} is not in the record key; take a global index"
        )
    if kind != STATE and not FACTS[kind].is_global:
        warnings.append(
            f"{r.said('hoodie.index.type')}: partition and key identify a row together; a record that comes with another "
            "partition than before is a second row, the first one stays"
        )
    if kind != STATE:
        warnings += [
            f"{r.said(name)}: has no effect, only the state index has it" for name in _STATE_ONLY if given(r, name)
        ]
    if kind in ("GLOBAL_BLOOM", "GLOBAL_SIMPLE"):
        warnings.append(
            f"{r.said('hoodie.index.type')}: each batch looks its keys up in the files of the whole table. The state index "
            "(hoodie.index.type=STATE, or no key at all) knows where they are; it is loaded from the table at its first "
            "start (docs/guide/indexes.md)"
        )
    if kind == "INMEMORY":
        warnings.append(
            f"{r.said('hoodie.index.type')}: every key of the table is held in the driver's memory (some 200 bytes each)"
        )
    days = r.real("index.state.ttl")
    if days > 0:
        warnings.append(
            f"{r.said('index.state.ttl')}: a key without a record for {days:g} days is forgotten; if it comes again it "
            "is written as a new row beside the old one, and a late event can overwrite a newer row"
        )
    days = r.real("index.tombstone.ttl")
    if days > 0:
        warnings.append(
            f"{r.said('index.tombstone.ttl')}: a key that was deleted more than {days:g} days ago is forgotten; an event of "
            "it that is older than its delete and comes after that inserts the row again"
        )
    if r.text("index.partition.regex") != ".*":
        warnings.append(
            f"{r.said('index.partition.regex')}: when the index is loaded from a table, keys in partitions that do not "
            "match stay unknown; a record with such a key is written as a new row beside the old one"
        )
    return warnings


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
