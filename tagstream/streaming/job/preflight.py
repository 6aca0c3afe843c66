"""All checks that are possible before a run changes anything: the cheapest and clearest first.

A start runs them before it starts Spark, and before it makes a table or a checkpoint. ``--dry-run`` runs the same
checks. A failed check raises the error that ends the start.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tagstream.catalog.opened import open_catalogs, reader_warnings
from tagstream.index.registry import IndexOptions, make_index
from tagstream.spark_release import running_problem
from tagstream.state.checkpoint import META_FILE, STATE_INDEX, TABLE_INDEX, check_fixed, is_unfinished, read_meta
from tagstream.streaming.batch.spark_checkpoint import query_id
from tagstream.streaming.errors import CheckpointError, LastingError, StreamError, UnfitMachineError
from tagstream.streaming.job.environment import check_java, check_master, check_s3a
from tagstream.streaming.job.error_table import check_place
from tagstream.streaming.job.schema_match import stream_schema, waits_for_records
from tagstream.streaming.job.table_match import (
    planned_table,
    table_lock,
    turns_on_changes,
    upgraded_fields,
    wants_upgrade,
)
from tagstream.streaming.options.options import Options
from tagstream.streaming.recovery.same_table import check_table, is_unused
from tagstream.streaming.source.connector import check_connector
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.streaming.source.file_cleaner import ARCHIVE_KEY
from tagstream.streaming.source.source_checks import check_source, order_notes
from tagstream.table.errors import ConfigError, TagstreamError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.stored_keys import check_bucketed
from tagstream.table.schema.evolve import column_not_by_name
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.services.upgrade import plan_change
from tagstream.table.storage.opening import open_storage, why_not_writable
from tagstream.table.storage.storage import META_FOLDER, Storage
from tagstream.table.table_version import TableVersion
from tagstream.table.timeline.lease import LeaseOwner, check_free


@dataclass(frozen=True)
class Ready:
    """What a start would work on. ``table``: the existing table or, with ``new``, the table that would be made.

    ``changes``: properties that a table without commits would get. ``taken_over``: a sentence when the checkpoint's
    table had another path or name before.
    """

    table: HoodieTable
    new: bool
    changes: str | None
    taken_over: str | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class SparkNeeds:
    """What Spark needs: ``java`` while no JVM runs, Kafka's ``connector``, the jars for a checkpoint on ``s3a``.
    ``master``: the named master.
    """

    java: bool
    connector: bool
    master: str | None
    s3a: bool = False


def check_start(options: Options, env: Mapping[str, str], now_ms: int, needs: SparkNeeds) -> Ready:
    """Run all checks for a start of a stream or of ``--bootstrap-only``. Raises the error that would end it.

    :func:`stream_problem` checks whether a stream can write the table.
    """
    problems: list[TagstreamError] = []
    try:
        check_before_spark(options, env, needs)
    except TagstreamError as error:
        problems.append(error)
    try:
        ready = _check_places(options, now_ms)
    except TagstreamError as error:
        problems.append(error)
    if problems:
        raise combined(problems)
    return ready


def _check_places(options: Options, now_ms: int) -> Ready:
    """Check table, checkpoint and schema, but not the source or Spark."""
    checkpoint = open_storage(options.run.checkpoint_dir)
    _check_writable("--checkpoint-dir", checkpoint)
    _check_cleaning(options)
    taken_over = check_table(checkpoint, options.table.base_path)
    planned = planned_table(options)
    table = planned.table
    _check_record_index(options, table)
    if wants_upgrade(options, table):
        plan_change(table, options.table.version, upgraded_fields(options, table))
    if options.dead_letters.base_path is not None and not options.run.bootstrap_only:
        check_place(options.dead_letters.base_path)
    _check_writable("--target-base-path", table.storage if planned.new else table.storage.below(META_FOLDER))
    check_free(table.storage, LeaseOwner.this_process(), now_ms)
    table_lock(options, table, lambda: now_ms).close()  # its package and its place; nothing is connected
    if options.run.bootstrap_only and table.timeline().newest_completed is None:
        return Ready(table, planned.new, planned.changes, taken_over, ())
    readers = () if options.run.bootstrap_only else _catalog_warnings(options, table)
    if (turned_on := None if planned.new or planned.changes else turns_on_changes(options, table)) is not None:
        readers = (*readers, turned_on)
    index = make_index(options.index, table.config.record_key_fields)
    if index is not None:
        index.check()
    if table.schema_json() is None and waits_for_records(options):
        return Ready(table, planned.new, planned.changes, taken_over, readers)
    avro_json, with_defaults = stream_schema(options, table)
    decode = DecodeSpec.for_table(table, avro_json, with_defaults, options)
    schema = avro_to_arrow(avro_json)
    decode.key_generator_rules.check(schema, digits=not planned.new)
    _check_checkpoint(options, checkpoint, decode)
    notes = () if options.run.bootstrap_only else order_notes(options, table.config, decode.ordering_kind, schema)
    return Ready(table, planned.new, planned.changes, taken_over, (*_schema_warnings(schema), *notes, *readers))


def combined(problems: Sequence[TagstreamError]) -> TagstreamError:
    """One error with the texts of several. It has the class of an error that no restart fixes, where one of them is
    such an error.
    """
    if len(problems) == 1:
        return problems[0]
    kinds = (ConfigError, LastingError, StreamError)
    kind = next(kind for kind in (*kinds, TagstreamError) if any(isinstance(error, kind) for error in problems))
    return kind("\n  ".join([f"{len(problems)} problems keep this job from starting:", *map(str, problems)]))


def check_before_spark(options: Options, env: Mapping[str, str], needs: SparkNeeds) -> None:
    """Check what Spark needs to start, and the source."""
    unfit = running_problem()
    if unfit is not None:
        raise UnfitMachineError(unfit)
    if needs.java:
        check_java(env)
    check_master(needs.master)
    if not options.run.bootstrap_only:
        check_source(options)
        if needs.connector:
            check_connector(env=env)
    if needs.s3a:
        check_s3a(env=env)


def _check_record_index(options: Options, table: HoodieTable) -> None:
    asked = options.metadata.record_index and options.metadata.partitioned_index and not options.run.bootstrap_only
    version = options.table.version if wants_upgrade(options, table) else table.config.version
    if asked and not TableVersion.of(version).partitioned_record_index:
        raise ConfigError(
            f"table {table.config.name} at {table.base_path} {'has' if table.config.raw else 'would get'} version {version}"
            ", whose readers (Hudi 0.x) read a record index by partition as a global one and miss keys: set "
            "hoodie.write.table.version=8 or 9, or use the global one (RECORD_INDEX, hoodie.metadata.record.index.enable)"
        )


def check_stream(table: HoodieTable, index: IndexOptions) -> None:
    """UnsupportedTableError when a stream with this index can't write the table.

    A metadata table does not prevent it: it is dropped if needed, but only once the job is sure to run.
    """
    table.without_metadata_table().check_writable()
    if not table.config.record_key_fields:
        raise UnsupportedTableError(
            f"cannot write table {table.config.name} at {table.base_path}: it has no record key "
            "(hoodie.table.recordkey.fields), and its rows have keys that their writer generated, so no record matches its "
            "row; copy it into a table with a record key"
        )
    column = column_not_by_name(table.storage)
    if column is not None:
        raise UnsupportedTableError(
            f"cannot write table {table.config.name} at {table.base_path}: its .hoodie/.schema says that the column "
            f"{column} was renamed, or got the name of another column (hoodie.schema.on.read.enable). Older files have its "
            "values under another name, and a rewrite by names would lose them; write the table with Hudi, or copy it into "
            "a new one"
        )
    check_bucketed(table, index.engine)


def stream_problem(table: HoodieTable, index: IndexOptions) -> str | None:
    """Why a stream with this index can't write the table; None when it can."""
    try:
        check_stream(table, index)
    except UnsupportedTableError as e:
        return str(e)
    return None


def check_query(checkpoint: Storage) -> None:
    """CheckpointError for the checkpoint of another program's query."""
    if not checkpoint.exists(META_FILE) and not is_unfinished(checkpoint) and query_id(checkpoint) is not None:
        raise CheckpointError(
            f"{checkpoint.root} is the checkpoint of another Spark query (it has no tagstream/meta.json); "
            "set --checkpoint-dir to a folder that only this stream uses"
        )


def _check_checkpoint(options: Options, checkpoint: Storage, decode: DecodeSpec) -> None:
    """CheckpointError where the options differ from the fixed settings of a checkpoint that is in use."""
    ordering = decode.ordering_kind  # raises for a column that can't be an ordering field
    check_query(checkpoint)
    if not checkpoint.exists(META_FILE) or is_unused(checkpoint):
        return
    found = read_meta(checkpoint)
    check_fixed(
        checkpoint.where(META_FILE),
        found,
        shuffle_partitions=options.run.shuffle_partitions or found.shuffle_partitions,
        key_groups=options.state.key_groups or found.key_groups,
        stream_id=options.stream_id,
        ordering=ordering,
        global_index=options.state.is_global,
        index=STATE_INDEX if options.state_index else TABLE_INDEX,
        explicit=options.explicit,
    )


def _check_cleaning(options: Options) -> None:
    """UnfitMachineError where the source's folder, or the archive folder for its files, is not writable."""
    if options.files.clean == "off" or options.files.root is None or options.run.bootstrap_only:
        return
    source = open_storage(options.files.root)
    if source.exists(""):  # otherwise the check of the source reports it
        _check_writable("hoodie.streamer.source.dfs.root", source)
    if options.files.archive is not None:
        _check_writable(ARCHIVE_KEY, open_storage(options.files.archive))


def _check_writable(flag: str, storage: Storage) -> None:
    problem = why_not_writable(storage)
    if problem is not None:
        text = f"{flag} {storage.root} can't be written: {problem}; set another folder, or fix that"
        raise UnfitMachineError(text)


def _catalog_warnings(options: Options, table: HoodieTable) -> tuple[str, ...]:
    """Warnings about the readers of the catalogues; ConfigError where a catalogue could not be called at all."""
    open_catalogs(options.sync, getpass.getuser())  # the packages and certificates; nothing is connected
    return tuple(reader_warnings(table.config, options.sync))


def _schema_warnings(schema: pa.Schema) -> tuple[str, ...]:
    local = [field.name for field in schema if _has_local_time(field.type)]
    if not local:
        return ()
    return (
        f"columns of a local-timestamp type ({', '.join(local)}): hudi-rs 0.5.0 can't read a table that has one "
        "(docs/reference/compatibility.md); if it must, give them the type timestamp-micros",
    )


def _has_local_time(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_has_local_time(kind.field(n).type) for n in range(kind.num_fields))
