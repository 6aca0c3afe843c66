"""What a run works with, made from options, table and session: the checkpoint's fixed choices, index, writer, layout."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath

from pyspark.sql import SparkSession

from tagstream.index.registry import STATE, make_index
from tagstream.state.checkpoint import (
    INDEX,
    STATE_INDEX,
    TABLE_INDEX,
    CheckpointMeta,
    clear_unfinished,
    current_root,
    open_or_create_meta,
)
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.context import INSERT_OVERWRITE, JobContext, RunEnvironment
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
from tagstream.table.file_group.bloom import BloomParams
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage
from tagstream.table.write.write_context import WriterOptions

_BASE_INSERTS = "tagstream.inserts.to.base.files"
LOG = logging.getLogger("tagstream")
DAY_MS = 86_400_000


def make_context(
    options: Options,
    table: HoodieTable,
    spark: SparkSession,
    lease: LeaseKeeper,
    stop: StopFlag,
    crash: CrashPlan,
    clock_ms: Callable[[], int],
) -> JobContext:
    """Everything the run works with; the checkpoint's fixed choices are made here at its first start."""
    checkpoint = open_storage(options.checkpoint_dir)
    taken_over = check_table(checkpoint, table.base_path)
    if taken_over is not None:
        LOG.warning("%s", taken_over)
    avro_json, with_defaults = stream_schema(options, table)
    decode = DecodeSpec.for_table(table, avro_json, with_defaults, options, source_table(checkpoint, options))
    meta = _open_meta(options, checkpoint, spark, table, decode)
    options = _as_first_spelled(options, meta.stream_id)
    root = current_root(checkpoint)
    owner = run_owner(clock_ms())
    run = claim_run(checkpoint, owner)
    index = make_index(options.index, table.config.record_key_fields)
    inserts = "true" if options.op == INSERT_OVERWRITE else inserts_to_base_files(options, table)
    base_only = inserts == "true" or (index is not None and not index.can_index_log_files)
    local_root = options.index_local_dir or spark.conf.get("spark.local.dir", "/tmp") or "/tmp"
    layout = StateLayout(
        durable=root.files.below(INDEX),
        local_dir=os.path.join(local_root, *_local_names(options, table.base_path, checkpoint.root)),
        ordering=decode.ordering_kind,
        global_index=options.global_index,
        ttl_ms=int(options.index_state_ttl_days * DAY_MS),
        tombstone_ttl_ms=int(options.index_tombstone_ttl_days * DAY_MS),
        local_root=local_root,
    )
    writer = WriterOptions(
        codec=options.parquet_codec,
        bloom=BloomParams(options.bloom_type, options.bloom_num_entries, options.bloom_fpp, options.bloom_max_entries),
        row_group_bytes=options.parquet_block_size,
        inserts_to_base_files=base_only,
        groups_begin_with_base_files=inserts == "first",
        compare_ordering=index is not None and not index.knows_ordering,
        drops_columns=options.schema.missing == "drop",
    )
    retained = int(spark.conf.get("spark.sql.streaming.minBatchesToRetain") or 100)
    return JobContext(
        env=RunEnvironment(checkpoint, meta, writer, lease, stop, crash, clock_ms, retained, index),
        options=options,
        table=table,
        root=root,
        run=run,
        run_owner=owner,
        layout=layout,
        decode=decode,
        avro_json=avro_json,
        small_files=SmallFiles(
            merge_on_read=table.config.is_merge_on_read,
            small_limit=options.parquet_small_file_limit,
            max_bytes=options.parquet_max_file_size,
            base_only=base_only,
            needs_base=inserts == "first",
            record_bytes=options.record_size_estimate,
            log_ratio=options.logfile_compression_ratio,
            trust_share=options.record_size_threshold,
        ),
    )


def inserts_to_base_files(options: Options, table: HoodieTable) -> str:
    """Whether new records of a merge-on-read table go to base files, as told: true, false, or first. Where nothing is told:
    with a metadata table of version 8 or later, since hudi-rs passes over file groups without a base file there."""
    if _BASE_INSERTS in options.explicit or not table.config.has_completion_times:
        return options.inserts_to_base_files
    will_have = options.metadata.is_made(table.config.version) and table.timeline().newest is None
    keeps = options.metadata.enable is not False and (bool(table.config.metadata_partitions) or will_have)
    return str(keeps).lower()


def _as_first_spelled(options: Options, stream_id: str) -> Options:
    """The source folder by the path it was first read by: by another, through a link, Spark would take its files for new."""
    first = PurePosixPath(stream_id)
    named = options.streaming_checkpoint_identifier is not None or options.source_class != "dfs"
    if named or not first.is_absolute() or first == PurePosixPath(options.stream_id):
        return options
    return replace(options, dfs_root=str(first))


def _open_meta(
    options: Options, checkpoint: Storage, spark: SparkSession, table: HoodieTable, decode: DecodeSpec
) -> CheckpointMeta:
    clear_unfinished(checkpoint)
    check_query(checkpoint)
    partitions = options.shuffle_partitions or spark.sparkContext.defaultParallelism
    return open_or_create_meta(
        checkpoint,
        shuffle_partitions=partitions,
        key_groups=options.index_key_groups or 4 * partitions,
        stream_id=options.stream_id,
        ordering=decode.ordering_kind,
        # A pull-type index finds its keys in the table at every batch: which one it is may change.
        global_index=options.index_global_enabled,
        table_name=table.config.name,
        table_path=table.base_path,
        explicit=options.explicit,
        index=STATE_INDEX if options.index.type == STATE else TABLE_INDEX,
        unused=is_unused(checkpoint),
    )


def _local_names(options: Options, base_path: str, checkpoint: str) -> list[str]:
    """``tagstream-<user id>/<table hash>/<checkpoint hash>`` on every executor; in a named folder without the first.

    Users who share Spark's folder have a folder each: one of a fixed name would be the first one's.
    """
    names = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in (base_path, checkpoint)]
    return names if options.index_local_dir else [f"tagstream-{os.getuid()}", *names]
