"""The list of indexes, and their options."""

from __future__ import annotations

from dataclasses import dataclass, field

from tagstream.index.base import HoodieIndex
from tagstream.index.bloom import BloomIndex, BloomIndexOptions, GlobalBloomIndex
from tagstream.index.bucket import BucketIndex
from tagstream.index.consistent_bucket import ConsistentBucketIndex
from tagstream.index.hbase_index import HbaseIndex
from tagstream.index.hbase_options import MAX_ROW_BYTES, HbaseOptions
from tagstream.index.no_look_up import NoLookUp
from tagstream.index.record_index import GlobalRecordLevelIndex, RecordLevelIndex
from tagstream.index.simple import GlobalSimpleIndex, InMemoryIndex, SimpleIndex
from tagstream.table.buckets.hashing_metadata import CONSISTENT_HASHING, SIMPLE_ENGINE
from tagstream.table.buckets.partition_rules import EXPRESSIONS
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.errors import ConfigError
from tagstream.table.keys.hash_fields import RELEASES
from tagstream.table.option_fields import derived, option

STATE = "STATE"

# All pull-type indexes by their ``hoodie.index.type``. A new one is added here.
INDEX_TYPES: dict[str, type[HoodieIndex]] = {
    index.name: index
    for index in (
        BloomIndex,
        GlobalBloomIndex,
        SimpleIndex,
        GlobalSimpleIndex,
        BucketIndex,
        HbaseIndex,
        GlobalRecordLevelIndex,
        RecordLevelIndex,
        InMemoryIndex,
    )
}
_INDEX = "Index"  # a section of the documentation
_MOVES = (
    "a record with another partition moves the row there; when false it is written to the partition of the existing row"
)


@dataclass(frozen=True)
class IndexOptions:
    """The user's options. ``update_partition_path`` None: the default of the index. ``overwrite``: batches replace rows.
    ``appends``: batches only add rows, so no key is looked up, whatever the type is."""

    type: str = derived(
        ConfigKey(
            "hoodie.index.type",
            Kind.CHOICE,
            "The index that finds a record's location (docs/guide/indexes.md). `FLINK_STATE` is Flink's "
            "name for STATE, `GLOBAL_RECORD_LEVEL_INDEX` is the name in Hudi 1.1 and later for "
            "RECORD_INDEX.",
            default=STATE,
            values={
                "STATE": STATE,
                "FLINK_STATE": STATE,
                **{name: name for name in INDEX_TYPES},
                "GLOBAL_RECORD_LEVEL_INDEX": "RECORD_INDEX",
            },
            aliases=("index.type",),
            section=_INDEX,
        ),
        ConfigKey(
            "hoodie.index.class",
            Kind.STRING,
            "The index by the class name of Hudi's index. It has precedence over the type.",
            default_note="by hoodie.index.type",
            section=_INDEX,
        ),
        default=STATE,
    )
    update_partition_path: bool | None = derived(
        ConfigKey("hoodie.bloom.index.update.partition.path", Kind.BOOL, f"GLOBAL_BLOOM: {_MOVES}.", default=True),
        ConfigKey("hoodie.record.index.update.partition.path", Kind.BOOL, f"RECORD_INDEX: {_MOVES}.", default=False),
        ConfigKey("hoodie.simple.index.update.partition.path", Kind.BOOL, f"GLOBAL_SIMPLE: {_MOVES}.", default=True),
        default=None,
    )
    bloom: BloomIndexOptions = field(default_factory=BloomIndexOptions)
    simple_parallelism: int = option(
        "hoodie.simple.index.parallelism",
        Kind.INT,
        "SIMPLE: number of lookup tasks; 0: the number of cores.",
        minimum=0,
        default=0,
    )
    global_simple_parallelism: int = option(
        "hoodie.global.simple.index.parallelism",
        Kind.INT,
        "GLOBAL_SIMPLE: number of lookup tasks, at most one per file.",
        default=100,
        minimum=1,
    )
    num_buckets: int = option(
        "hoodie.bucket.index.num.buckets",
        Kind.INT,
        "BUCKET: number of buckets (file groups) in each partition. With the simple engine it is fixed when the table is "
        "made and is in none of its properties: always set the same number (Flink's default is 4). With consistent "
        "hashing a new partition begins with this number.",
        default=256,
        minimum=1,
        maximum=99_999_999,
    )
    bucket_engine: str = option(
        "hoodie.index.bucket.engine",
        Kind.CHOICE,
        "BUCKET: how keys are distributed over buckets. With `CONSISTENT_HASHING` (merge-on-read only) clusterings split "
        "large buckets and merge small ones.",
        default=SIMPLE_ENGINE,
        values={name: name for name in (SIMPLE_ENGINE, CONSISTENT_HASHING)},
    )
    partition_expressions: str | None = option(
        EXPRESSIONS,
        Kind.STRING,
        "BUCKET, simple engine: numbers of buckets by partition, as `regex,number;regex,number`. The first regex that is "
        "found in the partition path counts, else hoodie.bucket.index.num.buckets. A regex cannot have a comma.",
        default_note="the rules that the table keeps, if any",
    )
    bucket_fields: tuple[str, ...] = option(
        "hoodie.bucket.index.hash.field",
        Kind.LIST,
        "BUCKET: the record key fields that are hashed.",
        default=(),
        default_note="the record key fields",
    )
    bucket_key_release: str = option(
        "tagstream.bucket.index.key.release",
        Kind.CHOICE,
        "BUCKET: how record keys are split into fields: as in Hudi 0.x or as in 1.x. They differ for "
        "keys whose values include a comma or a colon. Set the release that also writes the table.",
        default="1.x",
        values={name.upper(): name for name in RELEASES},
    )
    inserts_to_base_files: str = option(
        "tagstream.inserts.to.base.files",
        Kind.CHOICE,
        "Merge-on-read: where new records are written. `true`: to base files, for tables that are also "
        "written with a bloom or simple index (these do not see log files). `first`: a new file group "
        "begins with a base file, and later records go to its log files; hudi-rs also sees such groups "
        "in tables of version 8 and 9. `false`: to log files.",
        default="false",
        default_note="`false`; `true` on tables of version 8 and 9 that have a metadata table",
        values={"TRUE": "true", "FALSE": "false", "FIRST": "first"},
        section=_INDEX,
    )
    overwrite: bool = False
    appends: bool = False
    hbase: HbaseOptions | None = None
    rebalanced: bool = False

    @property
    def is_state(self) -> bool:
        """Whether the stream keeps the state index."""
        return self.type == STATE and not self.appends

    @property
    def engine(self) -> str | None:
        """The engine of the bucket index; None for another index."""
        return self.bucket_engine if self.type == BucketIndex.name else None

    @property
    def is_consistent(self) -> bool:
        """Whether it is the bucket index with consistent hashing."""
        return self.engine == CONSISTENT_HASHING

    @property
    def moves(self) -> bool:
        """Whether a row whose partition field changes moves to its new partition, if the index is a global one."""
        said = self.update_partition_path if self.hbase is None else self.hbase.update_partition_path
        return (self.type == STATE or INDEX_TYPES[self.type].moves_by_default) if said is None else said

    @property
    def longest_key(self) -> int | None:
        """Limit of a record key's bytes for an index in another system; None if there is no such system."""
        if self.hbase is None:
            return None
        prefix = len(str(self.hbase.bucket_number - 1)) if self.rebalanced else 0
        return MAX_ROW_BYTES - prefix


def is_consistent_class(name: str) -> bool:
    """Whether a class of Hudi (``hoodie.index.class``) is the bucket index with consistent hashing."""
    return name.rpartition(".")[2] in {c.rpartition(".")[2] for c in ConsistentBucketIndex.java_classes}


def type_of_class(name: str) -> str:
    """The index type of a class of Hudi (``hoodie.index.class``); ConfigError for another class."""
    if is_consistent_class(name):
        return BucketIndex.name
    for kind, index in INDEX_TYPES.items():
        if name in index.java_classes or name.rpartition(".")[2] in {c.rpartition(".")[2] for c in index.java_classes}:
            return kind
    known = ", ".join(c for index in INDEX_TYPES.values() for c in index.java_classes)
    raise ConfigError(f"hoodie.index.class = {name}: not a class of this writer; it has {known}")


def make_index(options: IndexOptions, record_key_fields: tuple[str, ...]) -> HoodieIndex | None:
    """The wanted pull-type index, or none for appends; None for the state index. ConfigError names a missing option."""
    if options.appends:
        return NoLookUp()
    if options.is_state:
        return None
    index = INDEX_TYPES.get(options.type)
    if index is None:
        raise ConfigError(f"hoodie.index.type = {options.type}: there is no such index")
    return (ConsistentBucketIndex if options.is_consistent else index).make(options, record_key_fields)
