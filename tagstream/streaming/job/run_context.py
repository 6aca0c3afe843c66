"""Make the context of a run from options, table and session: the checkpoint's fixed settings, index, writer and layout."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath

from pyspark.sql import SparkSession

from tagstream.index.registry import make_index
from tagstream.state.checkpoint import (
    INDEX,
    STATE_INDEX,
    TABLE_INDEX,
    CheckpointMeta,
    clear_unfinished,
    current_query_folder,
    open_or_create_meta,
)
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.context import JobContext, RunEnvironment
from tagstream.streaming.batch.small_files import SmallFiles
from tagstream.streaming.job.preflight import check_query
from tagstream.streaming.job.query import claim_run, run_owner
from tagstream.streaming.job.schema_match import stream_schema
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.options.options import Options
from tagstream.streaming.process import CrashPlan, StopFlag
from tagstream.streaming.recovery.same_source import source_table
from tagstream.streaming.recovery.same_table import check_table, is_unused
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.table.locks.lock import TableLock
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.operation import OVERWRITES

_BASE_INSERTS = "tagstream.inserts.to.base.files"
LOG = logging.getLogger("tagstream")


def make_context(
    options: Options,
    table: HoodieTable,
    spark: SparkSession,
    lease: LeaseKeeper,
    stop: StopFlag,
    crash: CrashPlan,
    clock_ms: Callable[[], int],
    lock: TableLock | None = None,
) -> JobContext:
    """Make the context of a run. At the first start of a checkpoint, its fixed settings are chosen and stored here."""
    checkpoint = open_storage(options.run.checkpoint_dir)
    taken_over = check_table(checkpoint, table.base_path)
    if taken_over is not None:
        LOG.warning("%s", taken_over)
    avro_json, with_defaults = stream_schema(options, table)
    decode = DecodeSpec.for_table(table, avro_json, with_defaults, options, source_table(checkpoint, options))
    meta = _open_meta(options, checkpoint, spark, table, decode)
    options = _as_first_spelled(options, meta.stream_id)
    query_folder = current_query_folder(checkpoint)
    owner = run_owner(clock_ms())
    run = claim_run(checkpoint, owner)
    index = make_index(options.index, table.config.record_key_fields)
    inserts = (
        "true" if options.appends or options.table.operation in OVERWRITES else inserts_to_base_files(options, table)
    )
    base_only = inserts == "true" or (index is not None and not index.can_index_log_files)
    local_root = options.state.local_dir or spark.conf.get("spark.local.dir", "/tmp") or "/tmp"
    layout = StateLayout(
        durable=query_folder.files.below(INDEX),
        local_dir=os.path.join(local_root, *_local_names(options, table.base_path, checkpoint.root)),
        ordering=decode.ordering_kind,
        global_index=options.global_index,
        ttl_ms=options.state.ttl_ms,
        tombstone_ttl_ms=options.state.tombstone_ttl_ms,
        local_root=local_root,
    )
    writer = replace(
        options.writer,
        inserts_to_base_files=base_only,
        groups_begin_with_base_files=inserts == "first",
        compare_ordering=index is not None and not (index.knows_ordering and _knows_rows(options)),
        drops_columns=options.schema.missing == "drop",
        keeps_duplicates=options.appends and options.operation.keeps_duplicates,
    )
    retained = int(spark.conf.get("spark.sql.streaming.minBatchesToRetain") or 100)
    return JobContext(
        env=RunEnvironment(
            checkpoint,
            meta,
            writer,
            lease,
            stop,
            crash,
            clock_ms,
            retained,
            lock or TableLock(None, options.lock),
            index,
        ),
        options=options,
        table=table,
        query_folder=query_folder,
        run=run,
        run_owner=owner,
        layout=layout,
        decode=decode,
        avro_json=avro_json,
        small_files=SmallFiles(
            options.file_sizes,
            merge_on_read=table.config.is_merge_on_read,
            base_only=base_only,
            needs_base=inserts == "first",
            prefix=_file_prefix(meta.stream_id) if lease.is_shared else "",
        ),
    )


def _knows_rows(options: Options) -> bool:
    """Whether the tag step has compared the rows that are written with the table's."""
    return not options.appends or options.operation.keeps_duplicates  # which compares none


def _file_prefix(stream_id: str) -> str:
    """The beginning of the ids of a stream's file groups, where it shares the table: two streams do not fill the same."""
    return hashlib.sha256(stream_id.encode()).hexdigest()[:8]


def inserts_to_base_files(options: Options, table: HoodieTable) -> str:
    """Whether new records of a merge-on-read table go to base files: "true", "false" or "first", as the option says.

    Without the option: "true" with a metadata table of version 8 or later, since hudi-rs skips file groups without a
    base file there. Never "false" with change data capture.
    """
    found = options.index.inserts_to_base_files
    if _BASE_INSERTS not in options.explicit and table.config.has_completion_times:
        will_have = options.metadata.is_made(table.config.version) and table.timeline().newest is None
        keeps = options.metadata.enable is not False and (bool(table.config.metadata_partitions) or will_have)
        found = str(keeps).lower()
    # Hudi reads the changes in a log only if its file group has a base file.
    return "first" if found == "false" and table.config.change_logging is not None else found


def _as_first_spelled(options: Options, stream_id: str) -> Options:
    """The options with the source folder's first path. With another path, for example through a link, Spark would read
    its files again.
    """
    first = PurePosixPath(stream_id)
    named = options.run.checkpoint_identifier is not None or options.source.kind != "dfs"
    if named or not first.is_absolute() or first == PurePosixPath(options.stream_id):
        return options
    return replace(options, files=replace(options.files, root=str(first)))


def _open_meta(
    options: Options, checkpoint: Storage, spark: SparkSession, table: HoodieTable, decode: DecodeSpec
) -> CheckpointMeta:
    clear_unfinished(checkpoint)
    check_query(checkpoint)
    partitions = options.run.shuffle_partitions or spark.sparkContext.defaultParallelism
    return open_or_create_meta(
        checkpoint,
        shuffle_partitions=partitions,
        key_groups=options.state.key_groups or 4 * partitions,
        stream_id=options.stream_id,
        ordering=decode.ordering_kind,
        # A pull-type index looks up its keys in the table in every batch, so another one may be used later.
        global_index=options.state.is_global,
        table_name=table.config.name,
        table_path=table.base_path,
        explicit=options.explicit,
        index=STATE_INDEX if options.state_index else TABLE_INDEX,
        unused=is_unused(checkpoint),
    )


def _local_names(options: Options, base_path: str, checkpoint: str) -> list[str]:
    """``tagstream-<user id>/<table hash>/<checkpoint hash>`` on every executor; without the first part in a configured
    folder.

    Each user has a folder: several users may share Spark's local folder, and a folder with a fixed name would belong to
    the first one.
    """
    names = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in (base_path, checkpoint)]
    return names if options.state.local_dir else [f"tagstream-{os.getuid()}", *names]
