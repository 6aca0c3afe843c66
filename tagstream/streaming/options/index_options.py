"""The options of the index, out of the checked entries."""

from __future__ import annotations

from tagstream.index.family.bloom import BloomIndexOptions
from tagstream.index.family.registry import FACTS, STATE, IndexOptions, type_of_class
from tagstream.index.hbase.options import HbaseOptions
from tagstream.streaming.options.resolve import Resolved
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.table_config import split_kinds

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


def index_warnings(r: Resolved, source_format: str) -> list[str]:
    """What the user should know of the choice. ``source_format``: what records are written in."""
    warnings = []
    kind = _type(r)
    by_partition = not (r.flag("index.global.enabled") if kind == STATE else FACTS[kind].is_global)
    fields = split_kinds(r.texts("hoodie.datasource.write.partitionpath.field"))[0]
    unnamed = [field for field in fields if field not in r.texts("hoodie.datasource.write.recordkey.field")]
    if by_partition and unnamed and source_format in ("debezium-json", "debezium-avro"):
        said = r.said("index.global.enabled" if kind == STATE else "hoodie.index.type")
        warnings.append(
            f"{said}: partition and key identify a row together, and a delete of {source_format} names its key alone: each "
            f"is a bad record, since {', '.join(unnamed)} is not in the record key; take a global index"
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
            "start (docs/indexes.md)"
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
