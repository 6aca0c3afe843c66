"""The job's options: entries from files and flags, checked against the key table, as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

from tagstream.index.registry import FACTS, STATE, IndexOptions
from tagstream.streaming.options.checks import (
    check_apart,
    check_bootstrap_only,
    check_frame,
    check_source,
    check_table_name,
    folder,
    given_times,
    key_generator,
    merge_mode,
    partition_times,
    required,
    source_archive,
)
from tagstream.streaming.options.index_options import (
    INDEX_CHOICE,
    MetadataOptions,
    index_options,
    index_warnings,
    metadata_options,
    relevant,
)
from tagstream.streaming.options.keys import kafka as kafka_keys
from tagstream.streaming.options.keys.registry import REGISTRY
from tagstream.streaming.options.keys.table import NEW_ENCODING
from tagstream.streaming.options.record_options import (
    DeadLetterOptions,
    RecordOptions,
    SchemaOptions,
    dead_letter_options,
    record_options,
    schema_options,
)
from tagstream.streaming.options.resolve import Resolved, resolve
from tagstream.streaming.options.service_options import ServiceOptions, service_options
from tagstream.streaming.options.transformer_options import TransformerOption, transformer_options
from tagstream.streaming.options.unsupported_report import refuse_or_tell
from tagstream.table.config import Entry, Value
from tagstream.table.errors import ConfigError
from tagstream.table.keys.time_partition import TimePartition
from tagstream.table.meta_client.table_config import split_kinds
from tagstream.table.read.stored_keys import CHECK_STORED

_T = TypeVar("_T")


@dataclass(frozen=True)
class FirstSchema:
    """The schema of a new table, from a record: its Avro JSON, where it is ``source``, and the record's ``table``."""

    avro_json: str
    source: str
    table: str | None


@dataclass(frozen=True)
class Options:
    """Effective options of one run.

    Sizes are bytes, intervals seconds, TTL days. ``explicit`` holds the names of the keys that the user gave (the rest
    are defaults, or are taken from an existing table by ``streaming.job.table_match``). ``kafka_options`` are ready for
    Spark's reader (prefix ``kafka.``) and hold secrets: log :meth:`describe`, never the value itself. ``frame_schema``: the
    Avro schema of typed rows: of the DataFrame that is the source, or of what transformers make of records; these then have
    the schema ``transformed_from``. ``first_schema``: of a table that has none, as its records say it.
    """

    target_base_path: str
    target_table: str | None
    database: str | None
    table_type: str
    op: str
    table_version: int
    auto_upgrade: bool
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    time_fields: tuple[str, ...]
    times: TimePartition | None
    time_keys: Mapping[str, str]
    ordering_fields: tuple[str, ...]
    hive_style: bool
    url_encode: bool
    drop_partition_columns: bool
    key_generator: str
    merge_mode: str
    key_collisions: str
    new_key_encoding: bool | None
    check_stored_keys: bool

    checkpoint_dir: str
    continuous: bool
    bootstrap_only: bool
    dry_run: bool
    min_sync_interval_seconds: int
    source_limit: int
    kafka_batch_bytes: int
    commit_on_errors: bool
    dead_letters: DeadLetterOptions
    replay_quarantine: bool
    max_bad_records: int
    status_port: int | None
    status_host: str
    status_stuck_after: float
    status_behind_after: float
    quarantine_days: float
    log_all_options: bool
    spark_master: str | None
    spark_conf: Mapping[str, str]
    shuffle_partitions: int | None
    streaming_checkpoint_identifier: str | None

    source_class: str
    kafka_topic: str | None
    kafka_options: Mapping[str, str]
    starting_offsets: str
    fail_on_data_loss: bool
    min_partitions: int
    dfs_root: str | None
    changed_files: Literal["fail", "again", "ignore"]
    source_clean: Literal["off", "delete", "archive"]
    source_clean_after_ms: int
    source_archive: str | None
    schema_file: str | None
    frame_schema: str | None
    first_schema: FirstSchema | None
    transformed_from: str | None
    transformers: tuple[TransformerOption, ...]
    decode_rules: Mapping[str, bool]
    records: RecordOptions
    schema: SchemaOptions

    index: IndexOptions
    index_bootstrap_enabled: bool
    index_bootstrap_corrupt: Literal["fail", "skip"]
    index_global_enabled: bool
    index_state_ttl_days: float
    index_tombstone_ttl_days: float
    index_partition_regex: str
    index_key_groups: int | None
    index_local_dir: str | None
    inserts_to_base_files: str  # true, false or first

    parquet_max_file_size: int
    parquet_small_file_limit: int
    parquet_codec: str
    parquet_block_size: int
    record_size_estimate: int
    record_size_threshold: float
    insert_split_size: int
    logfile_compression_ratio: float
    logfile_block_format: str
    bloom_type: str
    bloom_num_entries: int
    bloom_fpp: float
    bloom_max_entries: int
    metadata: MetadataOptions
    services: ServiceOptions

    explicit: frozenset[str]
    warnings: tuple[str, ...]
    described: tuple[tuple[str, str, str], ...]

    @property
    def global_index(self) -> bool:
        """Whether the record key alone identifies a row."""
        return self.index_global_enabled if self.index.type == STATE else FACTS[self.index.type].is_global

    @property
    def state_index(self) -> bool:
        """Whether the index is state of the stream."""
        return self.index.type == STATE

    @property
    def stream_id(self) -> str:
        """Name of this stream in the table's commits; empty with ``--bootstrap-only`` where nothing tells it yet."""
        named = self.streaming_checkpoint_identifier or self.kafka_topic or self.dfs_root
        return named or ("dataframe" if self.source_class == "frame" else "")

    def is_set(self, key: str) -> bool:
        """True when the user gave ``key`` (canonical name) himself."""
        return key in self.explicit

    def origin(self, key: str) -> str:
        """Where ``key`` came from: file and line, flag, or 'default'."""
        return next((origin for name, _, origin in self.described if name == key), "default")

    def describe(self, *, given_only: bool = False) -> list[str]:
        """The effective options, one ``key = value  (origin)`` a line, secrets masked; fit for a log.

        ``given_only``: those that are not at their defaults.
        """
        told = [x for x in self.described if not given_only or x[2] != "default"]
        more = [] if len(told) == len(self.described) else [f"and {len(self.described) - len(told)} at their defaults"]
        return [*(f"{name} = {value}  ({origin})" for name, value, origin in told), *more]


def build_options(entries: Sequence[Entry], frame_schema: str | None = None) -> Options:
    """Check ``entries`` and make the options; ConfigError says which key, value and origin is wrong, and what to do.

    ``frame_schema``: the source is a DataFrame, with this Avro schema.
    """
    r = resolve(REGISTRY, entries)
    base_path = required(r, "hoodie.base.path")
    checkpoint = required(r, "--checkpoint-dir")
    keys, partitions = (
        r.texts("hoodie.datasource.write.recordkey.field"),
        r.texts("hoodie.datasource.write.partitionpath.field"),
    )
    ordering = r.texts("hoodie.table.ordering.fields")
    source_class = "dfs" if r.text("--source-class") == "JsonDFSSource" else "kafka"
    source_class = source_class if frame_schema is None else "frame"
    dfs_root = folder(r.opt_text("hoodie.streamer.source.dfs.root"))
    bootstrap_only = r.flag("--bootstrap-only")
    archive = source_archive(r, dfs_root)
    check_apart(r, base_path, checkpoint, dfs_root if source_class == "dfs" and not bootstrap_only else None, archive)
    check_table_name(r)
    if bootstrap_only:
        check_bootstrap_only(r)
    elif frame_schema is None:
        check_source(r, source_class)
    else:
        check_frame(r)
    records = record_options(r, ordering, typed=frame_schema is not None)
    transformers = transformer_options(r, records.format)
    generator, merging = key_generator(r, keys, partitions), merge_mode(r, ordering)
    time_keys = given_times(r)
    time_fields, times = partition_times(r, generator, partitions, time_keys)
    partitions = split_kinds(partitions)[0]
    index = r.attempt(lambda: index_options(r), None, *INDEX_CHOICE)
    schema = schema_options(r, records, state_index=index is None or index.type == STATE)
    metadata = metadata_options(r, index.type if index is not None else "")
    services = service_options(r, index.type if index is not None else "")
    port = r.attempt(lambda: _either(r, "--status-port", "--metrics-port", r.opt_number), None)
    host = r.attempt(lambda: _either(r, "--status-host", "--metrics-host", r.opt_text), None)
    dead_letters = dead_letter_options(r, source_class, base_path)
    told = refuse_or_tell(r)
    assert index is not None  # else that was a problem
    return Options(
        target_base_path=base_path,
        target_table=r.opt_text("hoodie.table.name"),
        database=r.opt_text("hoodie.database.name"),
        table_type=r.text("hoodie.datasource.write.table.type"),
        op=r.text("hoodie.datasource.write.operation"),
        table_version=int(r.text("hoodie.write.table.version")),
        auto_upgrade=r.flag("hoodie.write.auto.upgrade"),
        record_key_fields=keys,
        partition_fields=partitions,
        time_fields=time_fields,
        times=times,
        time_keys=time_keys,
        ordering_fields=ordering,
        hive_style=r.flag("hoodie.datasource.write.hive_style_partitioning"),
        url_encode=r.flag("hoodie.datasource.write.partitionpath.urlencode"),
        drop_partition_columns=r.flag("hoodie.datasource.write.drop.partition.columns"),
        key_generator=generator,
        merge_mode=merging,
        key_collisions=r.text("tagstream.key.collisions"),
        new_key_encoding=r.opt_flag(NEW_ENCODING),
        check_stored_keys=r.flag(CHECK_STORED),
        checkpoint_dir=checkpoint,
        continuous=r.flag("--continuous"),
        bootstrap_only=bootstrap_only,
        dry_run=r.flag("--dry-run"),
        min_sync_interval_seconds=r.number("--min-sync-interval-seconds"),
        source_limit=_source_limit(r, source_class),
        kafka_batch_bytes=r.number("tagstream.kafka.max.batch.bytes"),
        commit_on_errors=r.flag("--commit-on-errors") or dead_letters.enabled,
        dead_letters=dead_letters,
        replay_quarantine=r.flag("--replay-quarantine"),
        max_bad_records=r.number("--max-bad-records"),
        status_port=port,
        status_host=host or "127.0.0.1",
        status_stuck_after=r.real("tagstream.status.stuck.after.seconds"),
        status_behind_after=r.real("tagstream.status.behind.after.seconds"),
        quarantine_days=r.real("tagstream.quarantine.retention.days"),
        log_all_options=r.text("tagstream.log.options") == "all",
        spark_master=r.opt_text("--spark-master"),
        spark_conf={name: entry.value for name, entry in r.spark_conf.items()},
        shuffle_partitions=r.opt_number("spark.sql.shuffle.partitions"),
        streaming_checkpoint_identifier=r.opt_text("hoodie.datasource.write.streaming.checkpoint.identifier"),
        source_class=source_class,
        kafka_topic=r.opt_text("hoodie.streamer.source.kafka.topic"),
        kafka_options=_kafka_options(r),
        starting_offsets=r.text("auto.offset.reset"),
        fail_on_data_loss=r.flag("hoodie.streamer.source.kafka.enable.failOnDataLoss"),
        min_partitions=r.number("hoodie.streamer.source.kafka.minPartitions"),
        dfs_root=dfs_root,
        changed_files=cast('Literal["fail", "again", "ignore"]', r.text("tagstream.source.dfs.changed.files")),
        source_clean=cast('Literal["off", "delete", "archive"]', r.text("tagstream.source.dfs.clean")),
        source_clean_after_ms=int(r.real("tagstream.source.dfs.clean.after.hours") * 3_600_000),
        source_archive=archive,
        schema_file=r.opt_text("hoodie.streamer.schemaprovider.source.schema.file"),
        frame_schema=frame_schema,
        first_schema=None,
        transformed_from=None,
        transformers=transformers,
        decode_rules={
            "round_numbers": r.text("tagstream.decode.numbers") == "round",
            "truncate_times": r.text("tagstream.decode.times") == "truncate",
            "bare_nan": r.text("tagstream.decode.nan") == "bare",
            "latin1_bytes": r.opt_text("tagstream.decode.bytes") == "iso-8859-1",
            "check_texts": r.text("tagstream.decode.texts") == "strict",
        },
        records=records,
        schema=schema,
        index=index,
        index_bootstrap_enabled=r.flag("index.bootstrap.enabled"),
        index_bootstrap_corrupt=cast("Literal['fail', 'skip']", r.text("index.bootstrap.corrupt.files")),
        index_global_enabled=r.flag("index.global.enabled"),
        index_state_ttl_days=r.real("index.state.ttl"),
        index_tombstone_ttl_days=r.real("index.tombstone.ttl"),
        index_partition_regex=r.text("index.partition.regex"),
        index_key_groups=r.opt_number("index.key.groups"),
        index_local_dir=r.opt_text("index.local.dir"),
        inserts_to_base_files=r.text("tagstream.inserts.to.base.files"),
        parquet_max_file_size=r.number("hoodie.parquet.max.file.size"),
        parquet_small_file_limit=r.number("hoodie.parquet.small.file.limit"),
        parquet_codec=r.text("hoodie.parquet.compression.codec"),
        parquet_block_size=r.number("hoodie.parquet.block.size"),
        record_size_estimate=r.number("hoodie.copyonwrite.record.size.estimate"),
        record_size_threshold=r.real("hoodie.record.size.estimation.threshold"),
        insert_split_size=r.number("hoodie.copyonwrite.insert.split.size"),
        logfile_compression_ratio=r.real("hoodie.logfile.to.parquet.compression.ratio"),
        logfile_block_format=r.text("hoodie.logfile.data.block.format"),
        bloom_type=r.text("hoodie.bloom.index.filter.type"),
        bloom_num_entries=r.number("hoodie.index.bloom.num_entries"),
        bloom_fpp=r.real("hoodie.index.bloom.fpp"),
        bloom_max_entries=r.number("hoodie.bloom.index.filter.dynamic.max.entries"),
        metadata=metadata,
        services=services,
        explicit=frozenset(r.values),
        warnings=(*([told] if told else []), *r.warnings, *index_warnings(r, records.format)),
        described=_described(r),
    )


def _either(r: Resolved, name: str, older: str, read: Callable[[str], _T]) -> _T:
    """The value of a key that has an older name; both are fine when they say the same."""
    if older not in r.values:
        return read(name)
    if name in r.values and r.values[name] != r.values[older]:
        raise ConfigError(f"{r.said(name)} and {r.said(older)}: {older} is the older name of {name}; remove it")
    return read(older)


def _source_limit(r: Resolved, source_class: str) -> int:
    limit = r.opt_number("--source-limit")
    if limit is None and source_class == "kafka":
        limit = r.opt_number("hoodie.streamer.kafka.source.maxEvents")
    return limit if limit is not None else (1_000_000 if source_class == "kafka" else 512 * 1024 * 1024)


def _kafka_options(r: Resolved) -> dict[str, str]:
    options = {kafka_keys.PREFIX + name: entry.value for name, entry in r.kafka.items()}
    servers = r.opt_text("bootstrap.servers")
    if servers is not None:
        options[kafka_keys.PREFIX + "bootstrap.servers"] = servers
    return options


def _described(r: Resolved) -> tuple[tuple[str, str, str], ...]:
    rows = [
        (key.name, _show(key.name, r.value(key.name), secret=key.secret), r.origin(key.name))
        for key in REGISTRY.keys
        if r.value(key.name) is not None and r.reported(key) and relevant(r, key.name)
    ]
    for names, prefix in ((r.kafka, kafka_keys.PREFIX), (r.spark_conf, "")):
        rows += [(prefix + name, _show(name, entry.value), entry.origin) for name, entry in sorted(names.items())]
    return tuple(rows)


def _show(name: str, value: Value, *, secret: bool = False) -> str:
    if secret:
        return kafka_keys.MASK
    if isinstance(value, bool):
        return str(value).lower()
    return kafka_keys.shown(name, ",".join(value) if isinstance(value, tuple) else str(value))
