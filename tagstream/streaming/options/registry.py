"""The table of the job's keys: names, types, defaults, documentation, and the keys that this version refuses.

A key is declared at the field that it fills, in the option object of the part that acts on it. The keys without such a
field are in ``streaming/options/keys/``.

``python -m tests.support.configuration_page`` writes docs/reference/configuration.md from it,
``streaming/options/cli.py`` the help, and ``streaming/options/options.py`` the checks.
"""

from __future__ import annotations

from tagstream.catalog.options import SyncOptions
from tagstream.index.bloom import BloomIndexOptions
from tagstream.index.hbase_options import HbaseOptions
from tagstream.index.registry import IndexOptions
from tagstream.state.options import StateIndexOptions
from tagstream.streaming.options.csv_options import CsvOptions
from tagstream.streaming.options.dead_letter_options import DeadLetterOptions
from tagstream.streaming.options.incr_options import IncrOptions
from tagstream.streaming.options.index_options import MetadataOptions
from tagstream.streaming.options.keys.csv import CSV_KEYS
from tagstream.streaming.options.keys.fixed import FIXED_KEYS
from tagstream.streaming.options.keys.incr import INCR_KEYS
from tagstream.streaming.options.keys.index import INDEX_IGNORED
from tagstream.streaming.options.keys.job import JOB_KEYS
from tagstream.streaming.options.keys.unsupported import (
    BESIDE_FAMILIES,
    BESIDE_KEYS,
    HUDI_REFUSED,
    IGNORED_FAMILIES,
    IGNORED_KEYS,
    OTHER,
    REFUSED_FAMILIES,
    REFUSED_KEYS,
)
from tagstream.streaming.options.operation_options import OperationOptions
from tagstream.streaming.options.proto_options import ProtoOptions
from tagstream.streaming.options.record_options import RecordOptions
from tagstream.streaming.options.run_options import RunOptions, StatusOptions
from tagstream.streaming.options.schema_options import SchemaOptions
from tagstream.streaming.options.service_options import ServiceOptions
from tagstream.streaming.options.source_options import FileSourceOptions, KafkaOptions, SourceOptions
from tagstream.streaming.options.table_options import TableOptions
from tagstream.streaming.source.decode.record_format import DecodeRules
from tagstream.table.config import Registry
from tagstream.table.file_group.bloom import BloomParams
from tagstream.table.history.archive_merge import MergeOptions
from tagstream.table.locks.options import LockOptions
from tagstream.table.option_fields import keys_of
from tagstream.table.services.clustering_options import ClusteringOptions, ResizeOptions
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CompactionOptions, TtlOptions
from tagstream.table.write.file_sizes import FileSizeOptions
from tagstream.table.write.write_context import WriterOptions

# The order of the sections of docs/reference/configuration.md.
_SECTIONS = (
    "Job", "Table", "Partitions by time", "Source", "Formats", "Schema changes", "Records", "Transformations", "Index",
    "Pull-type indexes", "HBASE index", "Files", "Metadata table", "Compaction", "Clustering", "Partition TTL",
    "Cleaning", "Archiving", "Catalogues", "Other writers", OTHER,
)  # fmt: skip


_KEYS = (
    *keys_of(RunOptions, "Job"),
    *keys_of(StatusOptions, "Job"),
    *JOB_KEYS,
    *keys_of(TableOptions, "Table"),
    *keys_of(OperationOptions, "Table"),
    *keys_of(SourceOptions, "Source"),
    *keys_of(KafkaOptions, "Source"),
    *keys_of(FileSourceOptions, "Source"),
    *keys_of(CsvOptions, "Source"),
    *keys_of(ProtoOptions, "Source"),
    *keys_of(IncrOptions, "Source"),
    *keys_of(DeadLetterOptions, "Job"),
    *keys_of(RecordOptions, "Formats"),
    *keys_of(SchemaOptions, "Schema changes"),
    *keys_of(DecodeRules, "Records"),
    *keys_of(IndexOptions, "Pull-type indexes"),
    *keys_of(ResizeOptions),
    *keys_of(StateIndexOptions, "Index"),
    *keys_of(BloomIndexOptions, "Pull-type indexes"),
    *keys_of(HbaseOptions, "HBASE index"),
    *keys_of(FileSizeOptions, "Files"),
    *keys_of(WriterOptions, "Files"),
    *keys_of(BloomParams, "Files"),
    *keys_of(MetadataOptions, "Metadata table"),
    *keys_of(ServiceOptions),
    *keys_of(CompactionOptions, "Compaction"),
    *keys_of(ClusteringOptions, "Clustering"),
    *keys_of(TtlOptions, "Partition TTL"),
    *keys_of(CleanOptions, "Cleaning"),
    *keys_of(ArchiveOptions, "Archiving"),
    *keys_of(MergeOptions, "Archiving"),
    *keys_of(SyncOptions, "Catalogues"),
    *keys_of(LockOptions, "Other writers"),
    *FIXED_KEYS,
    *INDEX_IGNORED,
    *IGNORED_KEYS,
    *BESIDE_KEYS,
    *REFUSED_KEYS,
    *HUDI_REFUSED,
    *CSV_KEYS,
    *INCR_KEYS,
)

REGISTRY = Registry(
    sorted(_KEYS, key=lambda key: _SECTIONS.index(key.section)),
    (*IGNORED_FAMILIES, *BESIDE_FAMILIES, *REFUSED_FAMILIES),
)
