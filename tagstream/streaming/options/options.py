"""The job's options: entries from files and flags, checked against the key table, as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tagstream.catalog.options import SyncOptions
from tagstream.index.registry import INDEX_TYPES, STATE, IndexOptions
from tagstream.state.options import StateIndexOptions
from tagstream.streaming.options.checks import (
    check_apart,
    check_bootstrap_only,
    check_file_form,
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
from tagstream.streaming.options.csv_options import CsvOptions, csv_options
from tagstream.streaming.options.dead_letter_options import DeadLetterOptions, dead_letter_options
from tagstream.streaming.options.incr_options import INCR_CLASS, IncrOptions, incr_options
from tagstream.streaming.options.index_options import (
    INDEX_CHOICE,
    MetadataOptions,
    index_options,
    index_warnings,
    metadata_options,
    relevant,
)
from tagstream.streaming.options.keys import kafka as kafka_keys
from tagstream.streaming.options.operation_options import (
    OPERATION,
    OperationOptions,
    check_whole_table,
    operation_options,
)
from tagstream.streaming.options.proto_options import first_schema, proto_options
from tagstream.streaming.options.record_options import RecordOptions, record_options
from tagstream.streaming.options.registry import REGISTRY
from tagstream.streaming.options.resolve import Resolved, resolve
from tagstream.streaming.options.run_options import RunOptions, StatusOptions
from tagstream.streaming.options.schema_options import SchemaOptions, schema_options
from tagstream.streaming.options.service_options import ServiceOptions, service_options, ttl_options
from tagstream.streaming.options.source_options import (
    FILE_CLASSES,
    FileSourceOptions,
    KafkaOptions,
    SourceOptions,
    file_form,
)
from tagstream.streaming.options.sync_options import sync_options
from tagstream.streaming.options.table_options import TableOptions
from tagstream.streaming.options.transformer_options import transformer_options
from tagstream.streaming.options.unsupported_report import refuse_or_report
from tagstream.streaming.source.decode.proto_rules import ProtoRules
from tagstream.streaming.source.decode.record_format import DecodeRules
from tagstream.table.config import Entry, Value
from tagstream.table.errors import ConfigError
from tagstream.table.file_group.bloom import BloomParams
from tagstream.table.locks.options import LockOptions
from tagstream.table.meta_client.table_config import split_kinds
from tagstream.table.option_fields import names_of, read
from tagstream.table.services.options import TtlOptions
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.write.file_sizes import FileSizeOptions
from tagstream.table.write.write_context import WriterOptions

_T = TypeVar("_T")
_ALL = 2**62  # records or bytes: no limit


@dataclass(frozen=True)
class Options:
    """Effective options of one run: those of each part, as the part itself declares them.

    ``explicit`` holds the names of the keys that the user gave (the rest are defaults, or come from an existing table by
    ``streaming.job.table_match``). ``kafka`` has secrets: log :meth:`describe`, never the value itself.
    """

    table: TableOptions
    operation: OperationOptions
    run: RunOptions
    status: StatusOptions
    dead_letters: DeadLetterOptions

    source: SourceOptions
    kafka: KafkaOptions
    files: FileSourceOptions
    csv: CsvOptions
    proto: ProtoRules | None
    incr: IncrOptions
    decode: DecodeRules
    records: RecordOptions
    schema: SchemaOptions

    index: IndexOptions
    state: StateIndexOptions

    file_sizes: FileSizeOptions
    writer: WriterOptions
    metadata: MetadataOptions
    services: ServiceOptions
    sync: SyncOptions
    lock: LockOptions

    explicit: frozenset[str]
    warnings: tuple[str, ...]
    described: tuple[tuple[str, str, str], ...]

    @property
    def global_index(self) -> bool:
        """Whether the record key alone identifies a row."""
        return self.state.is_global if self.index.type == STATE else INDEX_TYPES[self.index.type].is_global

    @property
    def state_index(self) -> bool:
        """Whether the index is state of the stream."""
        return self.index.is_state

    @property
    def appends(self) -> bool:
        """Whether every record becomes a new row, without a look-up of its key (INSERT and BULK_INSERT)."""
        return self.index.appends

    @property
    def stream_id(self) -> str:
        """Name of this stream in the table's commits; empty with ``--bootstrap-only`` if it is not known yet."""
        source = self.incr.path if self.source.kind == "hudi" else self.kafka.topic or self.files.root
        named = self.run.checkpoint_identifier or source
        return named or ("dataframe" if self.source.kind == "frame" else "")

    def is_set(self, key: str) -> bool:
        """True when the user gave ``key`` (canonical name)."""
        return key in self.explicit

    def origin(self, key: str) -> str:
        """Where ``key`` came from: file and line, flag, or 'default'."""
        return next((origin for name, _, origin in self.described if name == key), "default")

    def describe(self, *, given_only: bool = False) -> list[str]:
        """The effective options for a log, one ``key = value  (origin)`` per line, secrets masked.

        ``given_only``: those that differ from their defaults.
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
    class_name = r.text("--source-class")
    source_class = "frame" if frame_schema is not None else _kind_of(class_name)
    dfs_root = folder(r.opt_text("hoodie.streamer.source.dfs.root"))
    bootstrap_only = r.flag("--bootstrap-only")
    archive = source_archive(r, dfs_root)
    incr = incr_options(r, class_name)
    check_apart(
        r,
        base_path,
        checkpoint,
        dfs_root if source_class == "dfs" and not bootstrap_only else None,
        archive,
        incr.path if source_class == "hudi" else None,
    )
    check_table_name(r)
    if bootstrap_only:
        check_bootstrap_only(r)
    elif frame_schema is None:
        check_source(r, source_class)
        check_file_form(r, class_name, dfs_root)
    else:
        check_frame(r)
    records = record_options(r, ordering, typed=frame_schema is not None)
    csv, proto = csv_options(r, class_name), proto_options(r, class_name)
    schema_file = r.opt_text("hoodie.streamer.schemaprovider.source.schema.file")
    transformers = transformer_options(r, records.format)
    generator, merging = key_generator(r, keys, partitions), merge_mode(r, ordering)
    time_keys = given_times(r)
    time_fields, times = partition_times(r, generator, partitions, time_keys)
    partitions = split_kinds(partitions)[0]
    index = r.attempt(lambda: index_options(r), None, *INDEX_CHOICE)
    schema = schema_options(r, records, state_index=index is None or index.is_state)
    metadata = metadata_options(r, index.type if index is not None else "")
    services = service_options(r, index if index is not None else IndexOptions(""))
    operation = operation_options(r, index.type if index is not None else "")
    check_whole_table(r, source_class)
    port = r.attempt(lambda: _either(r, "--status-port", "--metrics-port", r.opt_number), None)
    host = r.attempt(lambda: _either(r, "--status-host", "--metrics-host", r.opt_text), None)
    dead_letters = dead_letter_options(r, source_class, base_path)
    sync = sync_options(r)
    lock = r.attempt(lambda: read(LockOptions, r), LockOptions(), *names_of(LockOptions))
    told = refuse_or_report(r)
    assert index is not None  # otherwise it was a problem
    return Options(
        table=read(
            TableOptions,
            r,
            base_path=base_path,
            partition_fields=partitions,
            time_fields=time_fields,
            times=times,
            time_keys=time_keys,
            key_generator=generator,
            merge_mode=merging,
        ),
        operation=operation,
        run=read(
            RunOptions,
            r,
            checkpoint_dir=checkpoint,
            commit_on_errors=r.flag("--commit-on-errors") or dead_letters.enabled,
            spark_conf={name: entry.value for name, entry in r.spark_conf.items()},
        ),
        status=read(StatusOptions, r, port=port, host=host or "127.0.0.1"),
        dead_letters=dead_letters,
        source=read(
            SourceOptions,
            r,
            kind=source_class,
            limit=_source_limit(r, source_class),
            frame_schema=frame_schema,
            first_schema=first_schema(proto, schema_file, records.delete_field),
            transformers=transformers,
        ),
        kafka=_kafka(r),
        files=read(FileSourceOptions, r, form=file_form(class_name), root=dfs_root, archive=archive),
        csv=csv,
        proto=proto,
        incr=incr,
        decode=read(DecodeRules, r),
        records=records,
        schema=schema,
        index=index,
        state=read(StateIndexOptions, r),
        file_sizes=read(FileSizeOptions, r),
        writer=read(WriterOptions, r, bloom=read(BloomParams, r)),
        metadata=metadata,
        services=services,
        sync=sync,
        lock=lock,
        explicit=frozenset(r.values),
        warnings=(*([told] if told else []), *r.warnings, *index_warnings(r, records.format)),
        described=_described(r),
    )


def _kind_of(class_name: str) -> str:
    """The kind of source that a source class reads."""
    if class_name == INCR_CLASS:
        return "hudi"
    return "dfs" if class_name in FILE_CLASSES else "kafka"


def services_of(entries: Sequence[Entry]) -> ServiceOptions:
    """The options of the services in a job's properties, for a process that runs the services instead of the job.

    ConfigError names each entry that the job would also refuse; other keys are ignored.
    """
    r = resolve(REGISTRY, entries)
    options = service_options(r, IndexOptions(r.opt_text("hoodie.index.type") or ""))
    if r.problems:
        raise ConfigError("\n".join(problem.text for problem in r.problems))
    return options


def ttl_of(entries: Sequence[Entry]) -> TtlOptions:
    """The options of the partition TTL in a job's properties, for a command. ConfigError without a number of days."""
    r = resolve(REGISTRY, entries)
    options = ttl_options(r)
    if options is None or r.problems:
        raise ConfigError("\n".join(problem.text for problem in r.problems))
    return options


def lock_of(entries: Sequence[Entry]) -> LockOptions:
    """The options of the lock in a job's properties, for a command that changes the table.

    ConfigError names each entry of a lock that the job would also refuse; other keys are ignored.
    """
    r = resolve(REGISTRY, entries)
    options = r.attempt(lambda: read(LockOptions, r), LockOptions(), *names_of(LockOptions))
    if r.problems:
        raise ConfigError("\n".join(problem.text for problem in r.problems))
    return options


def _either(r: Resolved, name: str, older: str, read: Callable[[str], _T]) -> _T:
    """The value of a key that has an older name; both may be given with the same value."""
    if older not in r.values:
        return read(name)
    if name in r.values and r.values[name] != r.values[older]:
        raise ConfigError(f"{r.said(name)} and {r.said(older)}: {older} is the older name of {name}; remove it")
    return read(older)


def _kafka(r: Resolved) -> KafkaOptions:
    kafka = read(KafkaOptions, r, consumer=_consumer(r))
    return replace(kafka, batch_bytes=0) if r.text(OPERATION) == WriteOperationType.INSERT_OVERWRITE_TABLE else kafka


def _source_limit(r: Resolved, source_class: str) -> int:
    if r.text(OPERATION) == WriteOperationType.INSERT_OVERWRITE_TABLE:
        return _ALL  # one batch replaces the table
    limit = r.opt_number("--source-limit")
    if limit is None and source_class == "kafka":
        limit = r.opt_number("hoodie.streamer.kafka.source.maxEvents")
    return limit if limit is not None else (1_000_000 if source_class == "kafka" else 512 * 1024 * 1024)


def _consumer(r: Resolved) -> dict[str, str]:
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
