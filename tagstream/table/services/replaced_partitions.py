"""Partitions whose rows are replaced or deleted: their file groups, their keys, and the delete of whole partitions.

A delete is a replace commit without new files, in Hudi's form. Readers do not see the rows after it completes. A later
clean deletes the files, and finally the folder. The commit has the extra metadata of the caller, and the schema of the
table.

``keys_in_other_partitions`` finds keys to write that the table has in a partition that is not replaced: they would
occur twice. Hudi does not check this, because an insert overwrite uses no index.

``delete_expired`` deletes partitions for their age, with the strategies of Hudi 1.2.0 (``KeepByTimeStrategy``). There is one
difference: Hudi takes the newest base instant of a partition for its last write. On a merge-on-read table log files may be
much newer, and Hudi deletes such rows. Here the blocks of these logs count, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.buckets.hashing_metadata import is_consistent
from tagstream.table.errors import ConfigError, InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.names import PARTITION_METAFILE, join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.changes import KEYS
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.record_encoding import instant_ms
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.read.snapshot import key_reader
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.services.metadata_changes import update_metadata
from tagstream.table.services.options import TTL_KEY, TtlOptions
from tagstream.table.steps import Step
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_timeline import parsed_schema, write_parsed
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant, State
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import completed_instant
from tagstream.table.write.markers import begin_markers, delete_markers


def groups_of_partitions(
    table: HoodieTable, partitions: Iterable[str], *, new_ones: bool = False
) -> dict[str, tuple[str, ...]]:
    """The file groups of some partitions, by partition path; empty for a partition without rows.

    InstantConflictError when a partition does not exist (with ``new_ones`` it is empty instead), or has groups in a
    pending plan.
    """
    timeline = table.timeline()
    view = table.view(timeline)
    wanted, there = {*partitions}, {*view.partitions()}
    unknown = sorted(wanted - there)
    if unknown and not new_ones:
        raise InstantConflictError(f"table {table.base_path} has no partition {unknown[0]!r}")
    found = {p: tuple(s.file_id for s in view.latest_merged_slices(p)) if p in there else () for p in sorted(wanted)}
    plans = {**timeline.pending_compactions, **timeline.pending_clusterings}
    busy = next((plans[p, f] for p, ids in found.items() for f in ids if (p, f) in plans), None)
    if busy is not None:
        raise InstantConflictError(
            f"table {table.base_path}: the plan {busy} is pending for file groups of these partitions: execute it first"
        )
    return found


def keys_of(table: HoodieTable, timeline: Timeline, partitions: Sequence[str]) -> Iterator[tuple[str, pa.Array]]:
    """(partition path, record keys of live rows) of all file groups of some partitions, in bounded batches."""
    view = table.view(timeline)
    if view.as_of is None:  # no commit, no rows
        return
    reader = key_reader(table, timeline, view.as_of, None)
    for partition in partitions:
        for at in view.latest_merged_slices(partition):
            for rows in reader.read(at):
                yield partition, rows.column(RECORD_KEY).combine_chunks().cast(pa.string())


def rows_of(table: HoodieTable, timeline: Timeline, partitions: Sequence[str]) -> Iterator[pa.Table]:
    """As :func:`keys_of`, as tables of ``KEYS``."""
    for partition, keys in keys_of(table, timeline, partitions):
        yield pa.Table.from_arrays([keys, pa.repeat(pa.scalar(partition, pa.string()), len(keys))], schema=KEYS)


def replaced_ids(groups: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The file groups, without partitions that have none."""
    return {partition: ids for partition, ids in groups.items() if ids}


def keys_in_other_partitions(
    table: HoodieTable, keys: pa.Array, replaced: Collection[str]
) -> Iterator[tuple[str, pa.Array]]:
    """(partition path, keys among ``keys`` that have a live row there) of the partitions that are not ``replaced``.

    The metadata table's record index is used if there is one; otherwise the keys of these partitions are read.
    """
    timeline = table.timeline()
    index = RecordIndex.open(MetadataTable.open(table, timeline)) if table.config.metadata_partitions else None
    if index is not None:
        found = index.lookup(keys.cast(pa.string()))
        paths, own = found.column("partition_path"), found.column("record_key")
        for path in sorted({*pc.unique(paths).to_pylist()} - {*replaced}):
            yield path, own.filter(pc.equal(paths, path)).combine_chunks()
        return
    others = [path for path in table.view(timeline).partitions() if path not in replaced]
    wanted = keys.cast(pa.large_string())
    for path, there in keys_of(table, timeline, others):
        here = pc.is_in(there.cast(pa.large_string()), value_set=wanted)
        if np.any(here.to_numpy(zero_copy_only=False)):
            yield path, there.filter(here)


def delete_partitions(
    table: HoodieTable,
    partitions: Sequence[str],
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
    extra: Mapping[str, str] | None = None,
) -> str | None:
    """Delete all rows of the partitions; returns the instant of the commit, None if they have no rows.

    Errors of ``groups_of_partitions``, and UnsupportedTableError for a table with consistent hashing. After an
    interruption it is a failed write without files, which a rollback
    undoes. ``reach`` is called at the steps ``replace_requested``, ``replace_inflight``, ``metadata_begun``,
    ``metadata_files``, ``metadata_completed`` and ``replace_completed``.
    """
    replaced = replaced_ids(groups_of_partitions(table, partitions))
    if not replaced:
        return None
    if is_consistent(table.storage):
        raise UnsupportedTableError(
            f"partitions of {table.base_path} cannot be deleted: its buckets are those of consistent hashing, and the "
            "partition's ring would still name the deleted file groups; delete the rows with a write"
        )
    timeline, storage = table.timeline(), table.storage
    instant = fresh_times(table, MetadataWriter.open(table), clock_ms)()
    requested: dict[str, object] = {
        "operationType": WriteOperationType.DELETE_PARTITION,
        "clusteringPlan": None,
        "extraMetadata": {},
        "version": 1,
    }
    planned = Instant(instant, REPLACE_COMMIT, State.REQUESTED)
    check()
    storage.write_new(
        table.instant_path(planned), write_parsed(parsed_schema("HoodieRequestedReplaceMetadata"), requested)
    )
    reach(Step.REPLACE_REQUESTED)
    begin_markers(storage, instant)
    inflight = Instant(instant, REPLACE_COMMIT, State.INFLIGHT)
    storage.write_new(
        table.instant_path(inflight),
        CommitMetadata(operation=WriteOperationType.DELETE_PARTITION).to_bytes(table.config.version),
    )
    reach(Step.REPLACE_INFLIGHT)
    after = update_metadata(
        table, instant, (), clock_ms, check, reach,
        deleted_keys=lambda: rows_of(table, timeline, [*replaced]),
    )  # fmt: skip
    schema = table.schema_json(timeline)
    metadata = CommitMetadata(
        {},
        {**({SCHEMA_KEY: schema} if schema else {}), **(extra or {})},
        WriteOperationType.DELETE_PARTITION,
        replaced=replaced,
    )
    check()
    completed = completed_instant(table, inflight, clock_ms(), after)
    storage.write_new(table.instant_path(completed), metadata.to_bytes(table.config.version, replaces=True))
    reach(Step.REPLACE_COMPLETED)
    delete_markers(storage, instant)
    return instant


@dataclass(frozen=True)
class Expired:
    """``partitions``: with rows, expired at this time, the oldest first, at most ``TtlOptions.most``. ``next_ms``: the
    first time at which a partition may be expired that is not among them.
    """

    partitions: tuple[str, ...]
    next_ms: int


def expired_partitions(
    table: HoodieTable, options: TtlOptions, now_ms: int, timeline: Timeline | None = None
) -> Expired:
    """The partitions whose time to live has passed at ``now_ms``. ConfigError for a table without partitions.

    A partition with file groups in a pending compaction or clustering has to wait for it. One without rows is left out.
    """
    if not table.config.partition_fields:
        raise ConfigError(f"table {table.base_path} has no partitions, so none can expire; remove {TTL_KEY}")
    timeline = timeline or table.timeline()
    view = table.view(timeline)
    busy = {partition for partition, _ in (*timeline.pending_compactions, *timeline.pending_clusterings)}
    there = view.partitions()
    wanted = sorted({*options.selected} & {*there}) if options.selected else there
    view.look_up(wanted)
    ages: list[tuple[int, str]] = []
    for partition in wanted:
        slices = view.latest_merged_slices(partition)
        if slices:
            ages.append((_reference_ms(table, options, partition, slices, now_ms), partition))
    due = sorted((since, path) for since, path in ages if since + options.life_ms < now_ms and path not in busy)
    taken = tuple(path for _, path in due[: options.most])
    later = [max(since + options.life_ms, now_ms) for since, path in {*ages} - {*due[: options.most]}]
    return Expired(taken, min(later, default=now_ms + options.life_ms))


def _reference_ms(
    table: HoodieTable, options: TtlOptions, partition: str, slices: Sequence[FileSlice], now_ms: int
) -> int:
    """Milliseconds since 1970 from which the age of a partition counts."""
    utc = table.config.timezone_utc
    if options.by_creation:
        created = _creation_instant(table.storage, partition)
        return now_ms if created is None else instant_ms(created, utc)
    newest = max(instant_ms(each.base_instant, utc) for each in slices)
    if newest + options.life_ms >= now_ms:
        return newest
    for path in (path for each in slices for path in each.log_paths):
        for block in scan_log_file(table.storage, path):
            if block.instant is not None:
                newest = max(newest, instant_ms(block.instant, utc))
    return newest


def _creation_instant(storage: Storage, partition: str) -> str | None:
    """The instant in a partition's metafile; None where there is none (a folder whose metafile has another format)."""
    try:
        lines = storage.read(join(partition, PARTITION_METAFILE)).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return None
    found = (line.partition("=")[2].strip() for line in lines if line.startswith("commitTime="))
    return next((instant for instant in found if instant.isdigit() and len(instant) >= 14), None)


def delete_expired(
    table: HoodieTable,
    options: TtlOptions,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
    timeline: Timeline | None = None,
) -> tuple[str | None, Expired]:
    """Delete the rows of the expired partitions. Returns the instant of the commit (None if nothing is expired) and what
    was found. ``check`` and ``reach``: of ``delete_partitions``.
    """
    found = expired_partitions(table, options, clock_ms(), timeline)
    if not found.partitions:
        return None, found
    return delete_partitions(table, found.partitions, clock_ms, check, reach), found
