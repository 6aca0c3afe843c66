"""Every index by its Hudi name and class, what each can do, and how the one that is asked for is made."""

from __future__ import annotations

from dataclasses import dataclass, field

from tagstream.index.base import HoodieIndex
from tagstream.index.bloom import BloomIndex, BloomIndexOptions, GlobalBloomIndex
from tagstream.index.bucket import BucketIndex
from tagstream.index.hbase_options import MAX_ROW_BYTES, HbaseOptions
from tagstream.index.record_index import GlobalRecordLevelIndex, RecordLevelIndex
from tagstream.index.simple import GlobalSimpleIndex, InMemoryIndex, SimpleIndex
from tagstream.table.errors import ConfigError
from tagstream.table.keys.bucket_hash import BucketHash

STATE = "STATE"


@dataclass(frozen=True)
class IndexOptions:
    """What the user asks for. ``update_partition_path`` None: the default of the index."""

    type: str = STATE
    update_partition_path: bool | None = None
    bloom: BloomIndexOptions = field(default_factory=BloomIndexOptions)
    simple_parallelism: int = 0
    global_simple_parallelism: int = 100
    num_buckets: int | None = None
    bucket_fields: tuple[str, ...] = ()
    bucket_key_release: str = "1.x"
    overwrite: bool = False
    hbase: HbaseOptions | None = None
    rebalanced: bool = False

    @property
    def is_state(self) -> bool:
        """Whether it is the state index."""
        return self.type == STATE

    @property
    def moves(self) -> bool:
        """Whether a row whose partition field changes moves to its new partition, where the index is a global one."""
        said = self.update_partition_path if self.hbase is None else self.hbase.update_partition_path
        return (self.is_state or FACTS[self.type].update_partition_path) if said is None else said

    @property
    def longest_key(self) -> int | None:
        """Bytes of a record key that an index in another system can hold; None where there is no such system."""
        if self.hbase is None:
            return None
        prefix = len(str(self.hbase.bucket_number - 1)) if self.rebalanced else 0
        return MAX_ROW_BYTES - prefix


@dataclass(frozen=True)
class IndexFacts:
    """What is fixed about an index, for checks before it is made and for the documentation."""

    is_global: bool
    can_index_log_files: bool
    is_implicit_with_storage: bool
    update_partition_path: bool
    classes: tuple[str, ...]


_HUDI = "org.apache.hudi.index."

# Defaults of "update partition path" as in HoodieIndexConfig and HoodieHBaseIndexConfig; a non-global index has none.
FACTS: dict[str, IndexFacts] = {
    "BLOOM": IndexFacts(False, False, True, False, (_HUDI + "bloom.HoodieBloomIndex",)),
    "GLOBAL_BLOOM": IndexFacts(True, False, True, True, (_HUDI + "bloom.HoodieGlobalBloomIndex",)),
    "SIMPLE": IndexFacts(False, False, True, False, (_HUDI + "simple.HoodieSimpleIndex",)),
    "GLOBAL_SIMPLE": IndexFacts(True, False, True, True, (_HUDI + "simple.HoodieGlobalSimpleIndex",)),
    "BUCKET": IndexFacts(False, True, True, False, (_HUDI + "bucket.HoodieSimpleBucketIndex",)),
    "HBASE": IndexFacts(
        True,
        True,
        False,
        False,
        (_HUDI + "hbase.SparkHoodieHBaseIndex", _HUDI + "hbase.RebalancedSparkHoodieHBaseIndex"),
    ),
    "RECORD_INDEX": IndexFacts(
        True,
        False,
        True,
        False,
        (_HUDI + "SparkMetadataTableRecordIndex", _HUDI + "SparkMetadataTableGlobalRecordLevelIndex"),
    ),
    "RECORD_LEVEL_INDEX": IndexFacts(False, False, True, False, (_HUDI + "SparkMetadataTableRecordLevelIndex",)),
    "INMEMORY": IndexFacts(True, True, False, True, (_HUDI + "inmemory.HoodieInMemoryHashIndex",)),
}


def type_of_class(name: str) -> str:
    """The index type that a class of Hudi's (``hoodie.index.class``) stands for; ConfigError for another class."""
    for kind, facts in FACTS.items():
        if name in facts.classes or name.rpartition(".")[2] in {c.rpartition(".")[2] for c in facts.classes}:
            return kind
    known = ", ".join(c for facts in FACTS.values() for c in facts.classes)
    raise ConfigError(f"hoodie.index.class = {name}: no class of this writer; the ones it knows are {known}")


def make_index(options: IndexOptions, record_key_fields: tuple[str, ...]) -> HoodieIndex | None:
    """The pull-type index asked for; None for the state index. ConfigError names what is missing."""
    kind = options.type
    if kind == STATE:
        return None
    match kind:
        case "BLOOM":
            return BloomIndex(options.bloom, options.moves)
        case "GLOBAL_BLOOM":
            return GlobalBloomIndex(options.bloom, options.moves)
        case "SIMPLE":
            return SimpleIndex(options.simple_parallelism, options.moves)
        case "GLOBAL_SIMPLE":
            return GlobalSimpleIndex(options.global_simple_parallelism, options.moves)
        case "RECORD_INDEX":
            return GlobalRecordLevelIndex(options.moves)
        case "RECORD_LEVEL_INDEX":
            return RecordLevelIndex(options.moves)
        case "INMEMORY":
            return InMemoryIndex()
        case "HBASE":
            if options.hbase is None:
                raise ConfigError("the HBASE index needs hoodie.index.hbase.table, the name of its table in HBase")
            return _hbase(options.hbase, rebalanced=options.rebalanced)
        case "BUCKET":
            return BucketIndex(_hashing(options, record_key_fields), load=not options.overwrite)
        case _:
            raise ConfigError(f"hoodie.index.type = {kind}: no such index")


def _hbase(options: HbaseOptions, *, rebalanced: bool) -> HoodieIndex:
    try:
        from tagstream.index.hbase_index import HbaseIndex, RebalancedHbaseIndex
    except ImportError as e:
        raise ConfigError(
            f"hoodie.index.type=HBASE: the package happybase is missing ({e}); install it with pip install "
            "'tagstream[hbase]' (in a checkout: pip install '.[hbase]'), on every host that runs Spark's workers"
        ) from None
    return (RebalancedHbaseIndex if rebalanced else HbaseIndex)(options)


def _hashing(options: IndexOptions, record_key_fields: tuple[str, ...]) -> BucketHash:
    buckets = options.num_buckets if options.num_buckets is not None else 256
    try:
        return BucketHash(
            buckets, record_key_fields, options.bucket_fields or record_key_fields, options.bucket_key_release
        )
    except ValueError as e:
        raise ConfigError(f"hoodie.bucket.index.hash.field: {e}") from None
